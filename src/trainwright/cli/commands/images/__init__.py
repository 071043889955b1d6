"""The commands about images: `trainwright image ...`. They use the store's directory, with or without a cluster."""
