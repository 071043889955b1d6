"""GPUs as the driver reports them; needs a machine that has one."""

from pathlib import Path

import pytest

from trainwright.cluster.node.devices.nvidia import read_gpus

on_a_gpu_machine = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="this machine has no NVIDIA GPU")


@on_a_gpu_machine
def test_the_gpus_of_this_machine_are_read() -> None:
    gpus = read_gpus()
    assert gpus
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-")
        assert gpu.memory > 2**30
        assert "/dev/nvidiactl" in gpu.nodes
        assert all(Path(node).is_char_device() for node in gpu.nodes)


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("trainwright.cluster.node.devices.nvidia._CONTROL_DEVICE", tmp_path / "nvidiactl")
    assert read_gpus() == ()
