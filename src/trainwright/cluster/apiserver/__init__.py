"""The embedded API server, for kubectl, SDKs, the operator, the controllers and the node agent.

`http` serves requests, `writes` computes the objects to store, `resources` describes the served kinds, `schema` decodes
and validates, `storage` keeps the objects.
"""
