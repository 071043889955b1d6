"""The images of pods: found, pulled and unpacked before the pod starts."""
