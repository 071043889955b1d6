"""Distributed training jobs of kubeflow.org, on one machine and on any Kubernetes cluster, by the same code."""

__version__ = "0.1.0"
