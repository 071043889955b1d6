"""Follows jobs to their end: watches, logs, progress lines and the final verdict."""
