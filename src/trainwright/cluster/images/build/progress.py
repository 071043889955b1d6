"""What a build prints, in the words of Docker's classic builder."""

import os
import sys
from typing import TextIO


class Progress:
    def __init__(self, output: TextIO | None = None, *, quiet: bool = False) -> None:
        self._output = output or sys.stdout
        self.quiet = quiet

    def print(self, line: str) -> None:
        if not self.quiet:
            self._output.write(line + "\n")
            self._output.flush()

    def step(self, number: int, count: int, text: str) -> None:
        self.print(f"Step {number}/{count} : {text}")

    def using_cache(self) -> None:
        self.print(" ---> Using cache")

    def running(self, container: str) -> None:
        self.print(f" ---> Running in {container}")

    def removed(self, container: str) -> None:
        self.print(f"Removing intermediate container {container}")

    def made(self, image_id: str) -> None:
        self.print(f" ---> {image_id}")

    def warning(self, text: str) -> None:
        self.print(f"[Warning] {text}")


def container_id() -> str:
    return os.urandom(6).hex()
