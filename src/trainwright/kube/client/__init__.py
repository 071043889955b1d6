"""The client: requests as values, an asynchronous and a blocking shell that send them, kubeconfig and credentials."""
