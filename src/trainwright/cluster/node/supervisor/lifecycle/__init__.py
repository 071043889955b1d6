"""Probes, lifecycle hooks and terminations: what happens to containers while they run and when they end."""
