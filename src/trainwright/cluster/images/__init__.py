"""Container images: names, formats, the store on this machine, archives, registries, layers and builds."""
