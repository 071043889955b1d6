"""Programs that print speed and memory as ratios to a peer that is measured in the same run."""
