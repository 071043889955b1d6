"""The embedded, Kubernetes-API-compatible server: kubectl, SDKs, our operator and node agent all talk to it over HTTPS.

`store` keeps objects, `registry` knows what is served, `verbs` and `watch` answer requests, `server` is the HTTP edge.
"""
