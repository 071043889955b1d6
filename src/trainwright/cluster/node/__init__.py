"""The embedded node: its pods are processes of this machine, each pod under a small supervisor of its own.

Supervisors import this package with nothing but the standard library, so it stays empty.
"""
