"""Dockerfiles and .dockerignore files as values. Nothing here reads a file or runs a program."""
