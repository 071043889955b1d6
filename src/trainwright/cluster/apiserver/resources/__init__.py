"""What is served: one row per resource with its defaults, validation and printer columns."""
