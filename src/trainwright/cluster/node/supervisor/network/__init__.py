"""The sockets of a pod: its own address in place of those of the machine."""
