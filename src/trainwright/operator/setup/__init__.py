"""The startup of the operator: permissions, CRDs, cluster capabilities and leader election."""
