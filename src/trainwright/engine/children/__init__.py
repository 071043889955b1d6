"""The pods and Services of a job: ranks, labels, the classes of observed children, the outcome of a pod."""
