"""Admission of writes: the chain of built-in plugins, and the webhooks that users register."""
