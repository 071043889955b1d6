"""The HTTP edge: routing, request parsing, the handlers of each verb, and the form of responses."""
