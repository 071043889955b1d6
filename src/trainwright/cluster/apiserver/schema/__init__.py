"""Schemas of objects: decoding, pruning, defaulting and validation."""
