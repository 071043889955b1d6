"""Our operator and the Go training-operator run the same jobs, each on a real control plane."""
