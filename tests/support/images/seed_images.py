"""The Dockerfiles of seeds 001 and 003, with the corrections that docs/how-to/bring-your-image.md lists, the wheel
that their pip installs here, and builds without a registry."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.cluster.embedded_cluster import UpCommand

SEED_001 = r"""FROM pytorch/pytorch:1.0-cuda10.0-cudnn7-runtime

RUN apt update
RUN apt install software-properties-common -y
RUN add-apt-repository ppa:deadsnakes/ppa -y
RUN apt install python3.7 --version -y
RUN python -m pip install --upgrade pip

RUN pip install tensorboardX==2.6.5
RUN mkdir -p /opt/mnist
RUN mkdir -p /opt/mnist/models

WORKDIR /opt/mnist/src
ADD mnist_training.py /opt/mnist/src/mnist_training.py

RUN  chgrp -R 0 /opt/mnist \
  && chmod -R g+rwX /opt/mnist

ENTRYPOINT ["python3", "/opt/mnist/src/mnist_training.py"]
"""
SEED_003 = """FROM pytorch/pytorch:1.0-cuda10.0-cudnn7-runtime
RUN pip install tensorboardX==2.6.5
WORKDIR /var
ADD mnist.py /var
ENTRYPOINT ["python", "/var/mnist.py"]
"""
SKIPPED = ("--skip-run", "apt *", "--skip-run", "add-apt-repository *")
"""The flags with which seed 001 builds: its lines for apt are for Ubuntu."""


def build_offline(up: UpCommand, *words: str, context: Path, wheels: Path | None = None) -> None:
    """`trainwright image build` for the cluster, while Docker Hub and PyPI are unreachable."""
    # Nothing listens at the proxy.
    offline = {"HTTPS_PROXY": "http://127.0.0.1:9", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels or context)}
    image = [sys.executable, "-m", "trainwright", "image", "build", "--data-dir", str(up.data.path)]
    done = subprocess.run(
        [*image, *words], cwd=context, env={**up.environment, **offline}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def with_torchvision(dockerfile: str, directory: str) -> str:
    """Beside the program, which `ADD` brings."""
    return dockerfile.replace("ADD mnist", f"ADD torchvision {directory}/torchvision\nADD mnist", 1)


_WRITER = b"""class SummaryWriter:
    def __init__(self, directory): ...
    def add_scalar(self, *values): ...
"""


def make_wheel(directory: Path) -> None:
    """tensorboardX 2.6.5 that writes nothing."""
    files = {
        "tensorboardX/__init__.py": _WRITER,
        "tensorboardX-2.6.5.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tensorboardX\nVersion: 2.6.5\n",
        "tensorboardX-2.6.5.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=") for name, data in files.items()
    }
    record = "".join(f"{name},sha256={digests[name].decode()},{len(data)}\n" for name, data in files.items())
    files["tensorboardX-2.6.5.dist-info/RECORD"] = f"{record}tensorboardX-2.6.5.dist-info/RECORD,,\n".encode()
    with zipfile.ZipFile(directory / "tensorboardX-2.6.5-py3-none-any.whl", "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
