"""One policy per file; the planner calls each in turn, and each adds to the plan."""
