"""HTTP: the server, its routes, requests and responses, the handlers of each verb, watches and discovery."""
