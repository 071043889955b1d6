"""The logs of followed jobs: where they come from, and how their lines are printed."""
