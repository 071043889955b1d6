"""The API types of kubeflow.org: kinds as data, defaults, validation and CRDs."""
