"""Addresses and host names of pods on this machine."""
