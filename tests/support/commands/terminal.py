"""A command on a terminal of its own, as a user sees it and answers it."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


class TerminalCommand:
    """`output` is everything that the command has written so far, with the codes that move the cursor."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.process = process
        self._master = master
        self.output = ""

    def wait_for(self, text: str, *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < deadline, f"{text!r} was not printed:\n{self.output}"
            if not self._read(0.2) and self.process.poll() is not None:
                break
        assert text in self.output, f"{text!r} was not printed:\n{self.output}"

    def wait(self, *, seconds: float = 60) -> int:
        """The exit code."""
        deadline = time.monotonic() + seconds
        while self._read(0.2) or self.process.poll() is None:
            assert time.monotonic() < deadline, f"the command did not end:\n{self.output}"
        return self.process.wait()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _read(self, seconds: float) -> bool:
        """False if nothing was written."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False  # the command has closed its terminal
        self.output += data.decode(errors="replace")
        return bool(data)


@contextmanager
def on_terminal(
    words: Sequence[str], environment: Mapping[str, str], *, columns: int = 80
) -> Iterator[TerminalCommand]:
    """Runs a command until the end of the block."""
    master, slave = pty.openpty()
    env = {**environment, "TERM": "xterm", "COLUMNS": str(columns), "NO_COLOR": "1"}
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    try:
        yield TerminalCommand(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
