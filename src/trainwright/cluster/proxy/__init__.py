"""What kube-proxy is on a real cluster: forwards connections to the addresses of Services to their pods."""
