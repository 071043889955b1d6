"""The client of registries: authentication, pulling and pushing images."""
