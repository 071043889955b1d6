"""A kind that nobody has written code for: whatever serves it serves kinds as data."""

from trainwright.api.kinds import Kind, Role

FLUTE = Kind(
    name="FluteJob",
    plural="flutejobs",
    framework="flute",
    replicas_field="fluteReplicaSpecs",
    roles=(Role("Player"),),
    container="flute",
    port_name="flute-port",
    port=4000,
    default_restart_policy="Never",
    columns=("Age", "State"),
)
