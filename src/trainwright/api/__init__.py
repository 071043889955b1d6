"""What users write: the kinds of kubeflow.org as data, their defaults, their validation and their CRDs."""
