"""Shared by all HTTP servers of the project: a certificate authority, listening and limits, WebSockets, SPDY."""
