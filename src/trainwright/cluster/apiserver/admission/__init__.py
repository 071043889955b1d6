"""Admission of writes: the plugin ServiceAccount, and the webhooks that users register."""
