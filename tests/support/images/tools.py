"""Debian's buildah, podman and skopeo, with a storage of their own."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NEEDED = ("buildah", "podman", "skopeo", "runc", "mmdebstrap")
REASON = "`make test-images` runs it: needs root and Debian's buildah, podman, skopeo, runc and mmdebstrap"


def are_installed() -> bool:
    return os.getuid() == 0 and all(shutil.which(tool) for tool in NEEDED)


def are_wanted() -> bool:
    """`make test` leaves them out, also where they are installed."""
    return bool(os.environ.get("TRAINWRIGHT_IMAGE_TOOLS")) and are_installed()


def debian_base() -> Path:
    """The files of a small Debian system with Python, made once and kept."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "trainwright", "test-images")
    path = directory / "bookworm-python3.tar"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tar")
        command = ["mmdebstrap", "--variant=minbase", "--include=python3-minimal", "bookworm", str(temporary)]
        subprocess.run(command, check=True, capture_output=True)
        temporary.rename(path)
    return path


@dataclass(frozen=True)
class ContainerTools:
    directory: Path

    def _storage(self) -> list[str]:
        return ["--root", str(self.directory / "storage"), "--runroot", str(self.directory / "run")]

    def run(self, *command: str | Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        answer = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if check and answer.returncode:
            raise AssertionError(f"{command} ended with {answer.returncode}:\n{answer.stdout}{answer.stderr}")
        return answer

    def build(self, name: str, context: Path, *flags: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        flags = ("--isolation", "chroot", "--layers", *flags)
        return self.run(
            "buildah", *self._storage(), "--storage-driver", "overlay", "bud", *flags, "-t", name, context, check=check
        )

    def run_image(self, name: str, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """`podman run` with the flags that work without CAP_SYS_RESOURCE."""
        settings = ("--storage-driver", "overlay", "--cgroup-manager=cgroupfs", "--runtime", "runc")
        limits = ("--ulimit", "nofile=1024:4096", "--ulimit", "nproc=4096:4096")
        return self.run(
            "podman", *self._storage(), *settings, "run", "--rm", "--network=host", *limits, name, *words, check=check
        )

    def close(self) -> None:
        """Unmounts what the tools have left mounted."""
        below = str(self.directory)
        places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in sorted((place for place in places if place.startswith(below)), reverse=True):
            self.run("umount", "--lazy", place, check=False)

    def storage_name(self, name: str) -> str:
        """The name of an image for skopeo."""
        return (
            f"containers-storage:[overlay@{self.directory / 'storage'}+{self.directory / 'run'}]localhost/{name}:latest"
        )

    def copy(self, source: str, target: str) -> None:
        self.run("skopeo", "copy", "--quiet", "--insecure-policy", source, target)

    def inspect(self, source: str, *flags: str) -> str:
        return self.run("skopeo", "inspect", *flags, source).stdout
