"""Volumes of pods: their sources in the Pod object, and their files."""
