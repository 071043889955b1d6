"""Which programs have ports of the machine because they tell their peers its addresses."""

import pytest

from trainwright.cluster.node.supervisor.network.advertised_ports import is_advertised


@pytest.mark.parametrize(
    ("port", "arguments", "variables", "advertised"),
    [
        (1024, [b"python", b"train.py"], [b"PMIX_RANK=0"], True),
        (1030, [b"python", b"train.py"], [b"OMPI_COMM_WORLD_RANK=1"], True),
        (8000, [b"python", b"train.py"], [b"PMIX_RANK=0"], False),
        (1024, [b"python", b"train.py"], [b"HOME=/"], False),
        (5000, [b"a.out"], [b"PMIX_RANK=0", b"OMPI_MCA_btl_tcp_port_min_v4=5000"], True),
        (1024, [b"a.out"], [b"PMIX_RANK=0", b"OMPI_MCA_btl_tcp_port_min_v4=5000"], False),
        (1024, [b"a.out"], [b"PMIX_RANK=0", b"OMPI_MCA_btl_tcp_port_min_v4=many"], True),
        (40123, [b"/venv/bin/python", b"/venv/bin/horovodrun", b"-np"], [], True),
        (40123, [b"python", b"-m", b"horovod.runner.task_fn", b"x"], [], True),
        (40123, [b"python", b"train.py"], [b"HOROVOD_ELASTIC=1"], True),
        (40123, [b"python", b"train.py"], [b"HOROVOD_RANK=0"], False),
        (40123, [b"python", b"/venv/bin/torchrun", b"train.py"], [], True),
        (29500, [b"python", b"/venv/bin/torchrun", b"train.py"], [], False),
        (40123, [b"python", b"train.py"], [b"TORCHELASTIC_RUN_ID=none"], True),
        (40123, [b"python", b"train.py", b"--out", b"x", b"horovodrun"], [], False),
    ],
)
def test_a_port_that_a_program_advertises_is_one_of_the_machine(
    port: int, arguments: list[bytes], variables: list[bytes], advertised: bool
) -> None:
    line, environment = (b"".join(text + b"\0" for text in texts) for texts in (arguments, variables))
    assert is_advertised(port, line, environment) is advertised
