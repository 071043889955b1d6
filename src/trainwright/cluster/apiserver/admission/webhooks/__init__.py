"""Admission webhooks: which of them a write concerns, the question to them and their answer."""
