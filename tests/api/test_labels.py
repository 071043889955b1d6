"""The rank that labels name."""

from trainwright.api.labels import REPLICA_INDEX, REPLICA_TYPE, rank_of


def test_labels_name_the_rank_of_a_pod() -> None:
    assert rank_of({REPLICA_TYPE: "worker", REPLICA_INDEX: "2"}, "digits-worker-2") == "worker-2"


def test_pod_without_an_index_is_called_by_its_role() -> None:
    assert rank_of({REPLICA_TYPE: "launcher"}, "digits-launcher") == "launcher"
    assert rank_of({}, "digits-launcher") == "digits-launcher"
