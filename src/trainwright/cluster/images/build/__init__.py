"""Builds of images from Dockerfiles."""
