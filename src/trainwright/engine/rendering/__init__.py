"""The objects of a job as manifests: pods, Services, labels and addresses."""
