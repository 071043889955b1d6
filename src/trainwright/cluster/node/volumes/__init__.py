"""Volumes of pods: their sources in the Pod object, and their setup on the disk."""
