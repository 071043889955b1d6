"""What a container sees and may use: file system, mounts, devices, privileges, control groups."""
