"""Before the operator works: permissions, CRDs, cluster capabilities and leader election."""
