"""The commands about existing jobs, one module each."""
