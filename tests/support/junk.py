"""What users, and operators of other versions, may leave in an object: anything that JSON can say."""

from hypothesis import strategies as st

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_containers = st.lists(
    st.dictionaries(st.sampled_from(["name", "image", "ports", "env"]), junk | st.just("pytorch"), max_size=4) | junk
)
_replica = st.fixed_dictionaries(
    {},
    optional={
        "replicas": junk,
        "restartPolicy": junk,
        "template": junk | st.fixed_dictionaries({"spec": junk | st.fixed_dictionaries({"containers": _containers})}),
    },
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "runPolicy": junk | st.dictionaries(st.sampled_from(["backoffLimit", "suspend", "managedBy"]), junk),
        "elasticPolicy": junk | st.dictionaries(st.sampled_from(["minReplicas", "rdzvConf", "metrics"]), junk),
        "nprocPerNode": junk,
        "pytorchReplicaSpecs": junk | st.dictionaries(st.sampled_from(["Master", "Worker", "worker"]), _replica | junk),
    },
)
"""A spec in which everything has a right name, and nothing need have a right value."""

_times = st.sampled_from(
    ["2026-11-15T04:00:00Z", "2026-11-15T03:59:59.123456789+02:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
_numbers = st.integers(-(10**6), 10**6)
CONDITIONS = ("Created", "Running", "Restarting", "Succeeded", "Failed", "Suspended")
_roles = st.sampled_from(["Master", "Worker", "Chief", ""])
statuses = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(
                        ["Created", "Running", "Restarting", "Succeeded", "Failed", "Suspended", ""]
                    ),
                    "status": st.sampled_from(["True", "False", "Unknown", ""]),
                },
                optional={"reason": st.text(max_size=5), "message": st.text(max_size=5), "lastTransitionTime": _times},
            ),
            max_size=4,
        ),
        "replicaStatuses": st.dictionaries(_roles, st.fixed_dictionaries({}, optional={"active": _numbers})),
        "startTime": _times,
        "completionTime": _times,
        "ports": st.dictionaries(_roles, _numbers),
        "restarts": st.dictionaries(_roles, _numbers),
        "replacedPods": st.lists(st.sampled_from(["digits-master-0-uid", "digits-worker-0-uid", "gone"])),
        "completedIndexes": st.dictionaries(_roles, st.text("0123456789,-x", max_size=9)),
    },
)
"""A status of the right types, with whatever content."""
