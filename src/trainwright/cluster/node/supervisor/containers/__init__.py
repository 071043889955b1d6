"""The containers of a pod: their processes, status, files, logs, and sessions inside them."""
