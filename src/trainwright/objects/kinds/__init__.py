"""What is specific to one built-in kind: views of pods and nodes, options of a pod's subresources, rules of quotas."""
