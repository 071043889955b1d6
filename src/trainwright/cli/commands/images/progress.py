"""The progress of pulls and pushes: bars on a terminal, elsewhere a line when a layer is done."""

from trainwright.cli.commands.images.store import size_text
from trainwright.cli.output.console import Console
from trainwright.cluster.images.registry.progress import FINAL, LayerProgress

_BAR = 30


class TransferDisplay:
    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._layers: dict[str, LayerProgress] = {}

    def report(self, progress: LayerProgress) -> None:
        if self._quiet:
            return
        self._layers[progress.id] = progress
        if progress.state in FINAL and not self._console.tty:
            self._console.print(_line(progress))
        elif self._console.tty:
            # What is above the visible part of the terminal cannot be drawn again.
            lines = [_line(layer) for layer in self._layers.values()]
            self._console.live(*lines[-(self._console.height - 1) :])

    def finish(self) -> None:
        """Leaves the last state on the terminal."""
        if self._console.tty and self._layers:
            self._console.live()
            for layer in self._layers.values():
                self._console.print(_line(layer))


def _line(progress: LayerProgress) -> str:
    text = f"{progress.id}: {progress.state}"
    if progress.source:
        text += f" {progress.source}"
    if progress.state in {"Downloading", "Pushing"} and progress.total:
        done = min(progress.done / progress.total, 1.0)
        bar = "=" * int(done * _BAR) + ">"
        text += f"  [{bar:<{_BAR + 1}}]  {size_text(progress.done)}/{size_text(progress.total)}"
    return text
