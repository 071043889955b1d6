"""Programs that print speed and memory as ratios against a peer that is measured in the same run."""
