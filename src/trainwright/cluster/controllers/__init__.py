"""What makes objects move inside the embedded cluster: scheduling, garbage collection, namespaces, volume binding.

Each controller watches, decides by pure functions and writes through the API, like those of a real control plane.
"""
