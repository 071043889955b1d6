"""What the kernel offers for containers: mounts, devices, privileges, user namespaces. Standard library only."""
