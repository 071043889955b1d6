"""A disk that becomes full while a job runs: `run` and `status` say what to do, and the job goes on."""

import subprocess
from pathlib import Path

from tests.support.cluster.disks import fill, small_disk
from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.trainwright import command_line, trainwright
from tests.support.objects.shell_jobs import shell_job, write_manifest
from tests.support.waiting import eventually


async def test_a_full_disk_is_named_and_the_job_succeeds_when_there_is_space(tmp_path: Path) -> None:
    script = "echo started; while ! test -e stop; do sleep 0.05; done; echo ended"
    manifest = write_manifest(tmp_path, shell_job("digits", script))
    with small_disk(tmp_path / "disk", size="30m") as disk, up_command(disk) as up:
        data = ("--data-dir", str(up.data.path))
        output = tmp_path / "output"

        async def printed() -> str:
            return output.read_text()

        async def reserved() -> bool:
            return up.data.store.stat().st_size > 4 * 1024 * 1024

        with output.open("w") as file:
            command = command_line("run", *data, manifest)
            run = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=dict(up.environment))
        await eventually(printed, lambda text: "started" in text)
        await eventually(reserved, bool)

        fill(disk / "filler")

        advice = f"free space on the disk of {up.data.node}: delete finished jobs"
        await eventually(printed, lambda text: f"DiskPressure: the disk is almost full; {advice}" in text)
        status = trainwright("status", *data, environment=up.environment)
        assert "  disk     almost full: 0 MiB of 30 MiB are available" in status.out, status.all
        assert advice in status.out

        (disk / "filler").unlink()
        (tmp_path / "stop").touch()

        assert run.wait(timeout=120) == 0, output.read_text()
        assert "ended" in output.read_text()
        status = trainwright("status", *data, environment=up.environment)
        assert "disk" not in status.out.replace(str(disk), ""), status.all
