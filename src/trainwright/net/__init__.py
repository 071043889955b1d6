"""Shared by all HTTP servers of the project: a certificate authority, and a graceful stop."""
