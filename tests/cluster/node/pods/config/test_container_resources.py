"""How many threads a process of a pod computes with."""

from fractions import Fraction

import pytest

from trainwright.cluster.node.pods.config.container_resources import cpu_of, omp_threads, processes_per_pod


@pytest.mark.parametrize(
    ("cores", "replicas", "processes", "cpu", "threads"),
    [
        (8, 1, 1, None, 8),
        (8, 3, 1, None, 2),
        (2, 3, 1, None, 1),
        (16, 2, 4, None, 2),
        (16, 2, None, None, 1),  # one process per core
        (8, 2, 1, Fraction(1, 2), 1),
        (8, 2, 1, Fraction(3), 3),
        (8, 2, 1, Fraction(64), 4),
        (8, None, 1, None, 1),
        (8, None, 1, Fraction(4), 4),
        (8, None, 2, Fraction(4), 2),
        (8, 0, 0, None, 1),
    ],
)
def test_the_cores_are_divided_by_the_processes_of_the_job(
    cores: int, replicas: int | None, processes: int | None, cpu: Fraction | None, threads: int
) -> None:
    assert omp_threads(cores=cores, replicas=replicas, processes=processes, cpu=cpu) == threads


def test_the_limit_counts_before_the_request() -> None:
    assert cpu_of({"resources": {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1"}}}) == Fraction(3, 2)
    assert cpu_of({"resources": {"requests": {"cpu": 2}}}) == 2
    assert cpu_of({"resources": {"limits": {"memory": "1Gi"}}}) is None
    assert cpu_of({}) is None


@pytest.mark.parametrize(
    ("argv", "variables", "processes"),
    [
        (["python", "train.py"], {}, 1),
        (["python", "train.py"], {"PET_NPROC_PER_NODE": "auto"}, 1),
        (["python", "-m", "torch.distributed.run", "train.py"], {"PET_NPROC_PER_NODE": "auto"}, None),
        (["sh", "-c", "exec torchrun train.py"], {"PET_NPROC_PER_NODE": "4"}, 4),
        (["torchrun", "--nproc-per-node", "4", "train.py"], {}, 4),
        (["torchrun", "--nproc_per_node=2", "train.py"], {"PET_NPROC_PER_NODE": "8"}, 2),
        (["torchrun", "train.py"], {"PET_NPROC_PER_NODE": "8"}, 8),
        (["torchrun", "--nproc-per-node=auto", "train.py"], {}, None),
        (["torchrun", "train.py"], {"PET_NPROC_PER_NODE": "gpu"}, None),
        (["torchrun", "--nproc-per-node"], {}, None),
    ],
)
def test_the_processes_of_torchrun_are_counted(
    argv: list[str], variables: dict[str, str], processes: int | None
) -> None:
    assert processes_per_pod(argv, variables) == processes
