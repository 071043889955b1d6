"""Carries out plans through the API; one module for each kind, and what they share."""
