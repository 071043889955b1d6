"""The operator as a process of its own, for tests that kill, pause or disconnect it."""

import asyncio
import re
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Self

from tests.support.kubernetes.controlplane import Daemon, held_port


class OperatorProcess(Daemon):
    """`trainwright operator` for one namespace, with its metrics on a port of its own."""

    def __init__(self, kubeconfig: Path, namespace: str, *flags: str, log: Path) -> None:
        self._place = held_port()
        self._port: int = self._place.getsockname()[1]
        super().__init__(
            *(sys.executable, "-m", "trainwright", "operator"),
            *("--kubeconfig", kubeconfig, "--namespace", namespace),
            f"--metrics-bind-address=127.0.0.1:{self._port}",
            "--health-probe-bind-address=0",
            "--webhook-server-port=0",
            *flags,
            log=log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._place.close()

    async def counters(self) -> Counter[str]:
        """The counters of all kinds of jobs, by the word in the middle of their names; empty before they are served."""
        return await asyncio.to_thread(self._scrape)

    def _scrape(self) -> Counter[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as page:
                text = page.read().decode()
        except OSError:
            return Counter()
        found = re.findall(r"^training_operator_jobs_(\w+)_total{[^}]*} ([0-9.]+)$", text, re.MULTILINE)
        counters: Counter[str] = Counter()
        for word, number in found:
            counters[word] += int(float(number))
        return counters
