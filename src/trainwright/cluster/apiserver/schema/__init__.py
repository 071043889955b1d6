"""Schemas: structural validation, pruning and defaulting, and the OpenAPI documents."""
