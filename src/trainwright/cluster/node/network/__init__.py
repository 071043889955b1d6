"""Addresses, names and ports of pods on this machine."""
