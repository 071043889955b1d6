"""Jobs without a manifest: `source` finds a Python program and its modules, `job` makes the objects that run it."""
