"""Volumes of pods: where each comes from, and making it on disk."""
