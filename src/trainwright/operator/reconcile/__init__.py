"""One job at a time: caches in, plan from the engine, writes to the cluster."""
