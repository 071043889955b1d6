"""The Dockerfiles of seeds 001 and 003, with the corrections that docs/how-to/bring-your-image.md lists, and the wheel
that their pip installs here."""

import base64
import hashlib
import zipfile
from pathlib import Path

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
