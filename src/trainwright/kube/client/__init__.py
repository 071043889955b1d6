"""The API client: requests and responses without I/O, two clients that send them, kubeconfig and credentials."""
