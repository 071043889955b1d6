"""JAXJob: its row."""

from trainwright.api.kinds.kind import Kind, Role

JAX = Kind(
    name="JAXJob",
    plural="jaxjobs",
    framework="jax",
    replicas_field="jaxReplicaSpecs",
    roles=(Role("Worker"),),
    container="jax",
    port_name="jaxjob-port",
    port=6666,
    default_restart_policy="Never",
    scaled_role="Worker",
)
