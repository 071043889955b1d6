"""What logs and statuses tell about a training: how far it is, how good it is, and why it failed. Pure functions."""
