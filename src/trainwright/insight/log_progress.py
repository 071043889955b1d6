"""Reads progress and metrics from the log lines of training programs, without support from the programs.

`read_line` parses one line, `advance` adds it to the progress so far. Neither raises an error for any text.
docs/reference/progress.md lists the formats.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Reading:
    """The contents of one line. `step` and `total` are in the unit of the line: batches or samples."""

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    rate: float | None = None
    is_bar: bool = field(default=False, compare=False)
    """True for a progress bar: several of them may run at the same time."""
    in_parts: bool = field(default=False, compare=False)
    """True if the line counts epochs in parts: 1.25."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress so far. `epochs` may come from the command line of the job, everything else from its logs."""

    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    speed: float | None = None
    """Steps per second, in the unit of `step`, over the last few lines."""
    marks: tuple[tuple[float, int], ...] = ()
    """Times and positions from which the speed is computed."""
    counts_from_zero: bool = False
    """True if the program has printed an epoch 0; `epoch` counts from 1 in any case."""
    spans_epochs: bool = False
    """True if `step` and `total` count the whole training, as Hugging Face's do, and not an epoch."""

    @property
    def is_of_epoch(self) -> bool:
        """True if `fraction` is that of the current epoch, because the number of epochs is unknown."""
        return self.epoch is not None and not self.epochs and not self.spans_epochs

    @property
    def fraction(self) -> float | None:
        """The finished part of the training, or of the current epoch."""
        within = self.step / self.total if self.step is not None and self.total else None
        if self.epoch is not None and self.epochs and not (self.spans_epochs and within is not None):
            whole = (max(self.epoch - 1, 0) + (within or 0.0)) / self.epochs
        elif within is not None:
            whole = within
        else:
            return None
        return min(whole, 1.0)


def read_line(line: str) -> Reading | None:
    """The progress or metrics in a line; None if it has none."""
    if not _may_report(line):
        return None
    text = _TAG.sub("", _visible(line), count=1)
    if boosted := _BOOSTED.match(text):
        return Reading(step=int(boosted["step"]), metrics=_boosting_metrics(boosted["metrics"]))
    if bar := _BAR.search(text) or _KERAS_BAR.match(text) or _RICH_BAR.search(text):
        return _read_bar(text, bar)
    if bar := _OPEN_BAR.search(text):
        return Reading(**_epoch(text)[0], step=_scaled(bar["step"]), metrics=_metrics(text), rate=_rate(text))
    epoch, rest = _epoch(text)
    counted = _COUNTER.search(rest) or _NAMED_STEP.search(rest)
    metrics = _metrics(text)
    if counted is None and not metrics and not epoch:
        return None
    if counted is None:
        return Reading(**epoch, metrics=metrics)
    total = counted["total"]
    step, of = int(counted["step"]), int(total) if total else None
    return Reading(**epoch, step=step, total=of, metrics=metrics, rate=_rate(text))


def _read_bar(text: str, bar: re.Match[str]) -> Reading | None:
    """A progress bar. One that is not about training counts only for its metrics."""
    metrics, name = _metrics(text), text[: bar.start()].lower()
    step, total = _scaled(bar["step"]), _scaled(bar["total"])
    words = re.findall(r"[a-z]+", name)
    if words and not _OTHER_WORK.isdisjoint({words[0], words[-1]}):
        return Reading(metrics=metrics) if metrics else None
    if _EPOCHS_NAME.fullmatch(name):  # `for epoch in tqdm(range(10), desc="Epochs")`, with a bar for each epoch
        return Reading(epoch=min(step + 1, total), epochs=total, metrics=metrics)
    epoch = _epoch(text)[0]
    if bar.re is _RICH_BAR and epoch.get("epochs"):
        epoch["epochs"] += 1  # it shows the number of the last epoch, from 0
    return Reading(**epoch, step=step, total=total, metrics=metrics, rate=_rate(text), is_bar=True)


def advance(progress: Progress, reading: Reading, at: float) -> Progress:
    """The progress after a line that was read at the time `at`, in seconds of a monotonic clock."""
    from_zero = progress.counts_from_zero or reading.epoch == 0
    shift = 1 if from_zero else 0
    new_epoch = reading.epoch is not None and reading.epoch + shift != progress.epoch
    if not new_epoch and _is_other_bar(progress, reading):
        reading = replace(reading, step=None, total=None)
    spans = progress.spans_epochs or reading.in_parts
    moved = replace(
        progress,
        counts_from_zero=from_zero,
        spans_epochs=spans,
        epoch=progress.epoch if reading.epoch is None else reading.epoch + shift,
        epochs=_epochs(progress, reading, shift),
        step=reading.step if reading.step is not None or (new_epoch and not spans) else progress.step,
        total=reading.total if reading.step is not None else progress.total,
        metrics={**progress.metrics, **reading.metrics},
    )
    if reading.step is None:
        return moved
    earlier = 0 if spans else max((moved.epoch or 1) - 1, 0)
    position = reading.step + earlier * (reading.total or 0)
    # After a restart the position is an earlier one: the speed is measured from there.
    marks = progress.marks if progress.marks and progress.marks[-1][1] <= position else ()
    marks = (*marks, (at, position))[-_MARKS:]
    return replace(moved, marks=marks, speed=reading.rate or _speed(marks))


def _epochs(progress: Progress, reading: Reading, shift: int) -> int | None:
    """The number of epochs. Programs that count from zero print it, as in 0/10, or the last number, as in 0/9."""
    known, found, epoch = progress.epochs, reading.epochs, (reading.epoch or 0) + shift
    if found is None or found + shift == known:
        return known if known and epoch <= known else None  # it trains for longer than was planned
    return max(found, epoch)


def _is_other_bar(progress: Progress, reading: Reading) -> bool:
    """True for a bar beside the one of the training: within an epoch, or smaller than one that is not finished."""
    if not (reading.is_bar and reading.total and progress.total) or progress.step is None:
        return False
    if reading.total == progress.total:
        return False
    return progress.epoch is not None or (progress.step < progress.total and reading.total < progress.total)


def planned_epochs(arguments: Iterable[str]) -> int | None:
    """The number of epochs in a command line: `--epochs=8`, `--num_epochs 8`, `--trainer.max_epochs=8`."""
    if match := _PLANNED.search(" ".join(arguments)):
        return int(match["epochs"])
    return None


def epochs_in_source(source: str) -> int | None:
    """The number of epochs that a program gives to Lightning's Trainer, whose bar does not show it: `max_epochs=8`.

    None if the program computes it, or has several.
    """
    found = {int(match["epochs"]) for match in _MAX_EPOCHS.finditer(_COMMENT.sub("", source))}
    return found.pop() if len(found) == 1 else None


_MARKS = 32
_LONGEST = 2000
_NUMBER = r"[-+]?(?:(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,3})?|nan\b|inf\b)"
_COUNT = r"[0-9]{1,15}"

_TAG = re.compile(r"^[^\[\]]{0,40}\[[^\[\]]{1,80}\]<std(?:out|err|diag)>:\s?")
"""The process that printed the line: horovodrun's `[0]<stdout>:`, with the time in front if wanted, mpirun's
`[1,0]<stdout>:` with --tag-output."""
_SCALED = r"[0-9]{1,15}(?:\.[0-9]{1,3})?[kMG]?"
_BAR = re.compile(rf"[0-9]{{1,3}}%\|[^|]{{0,200}}\|\s{{0,9}}(?P<step>{_SCALED})/(?P<total>{_SCALED})\b")
"""tqdm, with `unit_scale` too: ` 45%|####5     | 450/1000 [00:10<00:12, 45.0it/s]`, `1.20k/60.0k`."""
_OPEN_BAR = re.compile(rf"(?:^|\s)(?P<step>{_SCALED})\s?it \[[0-9:]{{4,9}}, ")
"""tqdm without a total: `450it [00:10, 45.0it/s, loss=0.3]`."""
_RICH_BAR = re.compile(
    rf"\s[━╸╺]{{2,200}}\s{{1,9}}(?P<step>{_COUNT})/(?P<total>{_COUNT})\s(?=.{{0,40}}(?:it/s|[0-9]:[0-9]{{2}}))"
)
"""Lightning's RichProgressBar: `Epoch 0/9 ━━━━━╸━━━━ 45/100 0:00:01 • 0:00:02 45.0it/s train_loss: 0.3`."""
_KERAS_BAR = re.compile(
    rf"\s{{0,9}}(?P<step>{_COUNT})/(?P<total>{_COUNT})\s(?:\[[=>.]{{1,60}}\]|━{{1,60}}|- [0-9]{{1,9}}[mu]?s\b)"
)
"""`12/100 ━━━━━━━━ 3s 20ms/step - loss: 0.3`, `12/100 [==>....] - ETA: 3s - loss: 0.3`, `100/100 - 3s - loss: 0.3`."""
_BOOSTED = re.compile(
    rf"(?:\[[0-9:]{{8}}\] )?\[(?P<step>{_COUNT})\](?P<metrics>"
    rf"(?:\s{{1,9}}[\w.]{{1,60}}(?:-|'s )[\w@.-]{{1,60}}:\s?{_NUMBER}(?:\s?\+\s?{_NUMBER})?){{1,20}})\s{{0,9}}$"
)
"""A boosting round: XGBoost's `[3] train-rmse:0.1`, with the time in front if it is distributed, and LightGBM's
`[3] valid_0's l2: 0.1`."""
_BOOSTING_METRIC = re.compile(rf"(?P<data>[\w.]{{1,60}})(?:-|'s )(?P<name>[\w@.-]{{1,60}}):\s?(?P<value>{_NUMBER})")
_RATE = re.compile(rf"(?P<rate>{_NUMBER})\s?(?P<unit>it/s|steps?/s|batch(?:es)?/s|s/it|s/step|ms/step|us/step)")
_EPOCH = re.compile(
    rf"\bepochs?['\"]?\s{{0,3}}[:=#]?\s{{0,3}}['\"]?\[?\s{{0,3}}(?P<epoch>{_COUNT})(?![0-9.]*%)"
    rf"(?P<part>\.[0-9]{{1,9}})?(?:\s?(?:/|of)\s?(?P<epochs>{_COUNT})\]?)?",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    rf"\[\s{{0,9}}(?P<step>{_COUNT})\s?/\s?(?P<total>{_COUNT})\s?(?:\(\s{{0,3}}[0-9.]{{1,9}}\s?%\))?\s?\]"
)
_NAMED_STEP = re.compile(
    rf"\b(?:global_step|step|iteration|iter|batch)['\"]?\s{{0,3}}[:=#]?\s{{0,3}}\[?(?P<step>{_COUNT})(?![0-9.]*%)"
    rf"(?:\s?(?:/|of)\s?(?P<total>{_COUNT}))?",
    re.IGNORECASE,
)
_METRIC = re.compile(
    rf"(?:\b(?P<part>train|training|val|valid|validation|test|eval)[_/ -]|\b|_|/)"
    rf"(?P<name>loss|accuracy|acc@1|acc1|top1|acc|perplexity|ppl|lr|learning[_ ]rate)['\"]?"
    # Without a colon only a number with a point, an exponent or a percent sign: `loss 0.06`, but not `loss 3 times`.
    rf"(?:\s{{0,9}}[:=]\s{{0,9}}['\"]?|\s{{1,9}}(?=[-+]?(?:[0-9]{{0,18}}\.[0-9]|[0-9]{{1,18}}(?:[eE][-+]|\s?%)|nan\b)))"
    rf"(?P<value>{_NUMBER})"
    rf"(?:\s?/\s?(?P<of>{_COUNT})|(?P<percent>\s?%))?",
    re.IGNORECASE,
)
_PLANNED = re.compile(
    r"(?:^|\s)--(?:\w{1,40}\.)?(?:num[-_](?:train[-_])?|max[-_]|n[-_]|total[-_])?epochs[= ]"
    r"(?P<epochs>[0-9]{1,9})(?:\s|$)"
)
_MAX_EPOCHS = re.compile(r"\bmax_epochs\s{0,3}=\s{0,3}(?P<epochs>[0-9]{1,9})\b")
_COMMENT = re.compile(r"#.*")
_EPOCHS_NAME = re.compile(r"\W{0,9}epochs?\W{0,9}")
_OTHER_WORK = frozenset({
    "sanity", "val", "valid", "validation", "validating", "eval", "evaluation", "evaluating", "test", "testing",
    "predict", "predicting", "inference", "generating", "download", "downloading", "load", "loading", "fetching",
    "tokenizing", "map", "filter", "preprocessing", "extracting", "saving",
})  # fmt: skip
"""The first or the last word of the name of a bar that is not about training: `Validation DataLoader 0:  50%|`."""
_OF_TEST = re.compile(r"\s{0,99}(?:test|val|valid|validation|eval)\w{0,9}\b", re.IGNORECASE)
_FRACTION = re.compile(r"[0-9]\s?/\s?[0-9]")
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")


def _may_report(line: str) -> bool:
    """False for most lines without progress. Thousands of lines are read per second, so this must be quick: the rest
    of the module looks only at lines with one of these words."""
    text = line.lower() if len(line) <= _LONGEST else line[-_LONGEST:].lower()
    return (
        "loss" in text
        or "epoch" in text
        or "acc" in text
        or "step" in text
        or "iter" in text
        or "batch" in text
        or "perplexity" in text
        or "ppl" in text
        or "top1" in text
        or "lr" in text
        or "learning" in text
        or "it [" in text
        or "%|" in text
        or text.startswith("[")
        or ("/" in text and _FRACTION.search(text) is not None)
    )


def _visible(line: str) -> str:
    """The text that a terminal would show: progress bars rewrite the line after `\\r` or backspaces. It is cut if it is
    very long."""
    if "\r" not in line and "\b" not in line and "\x1b" not in line:
        return line[:_LONGEST] if line.strip() else ""
    parts = [part for part in re.split(r"[\r\b]+", line.rstrip("\r\n")) if part.strip()]
    return _COLOURS.sub("", parts[-1][:_LONGEST]) if parts else ""


def _epoch(text: str) -> tuple[dict[str, Any], str]:
    """The epoch in a line, and the line without it, so that its numbers are not read as steps."""
    match = _EPOCH.search(text)
    if match is None:
        return {}, text
    epochs = match["epochs"]
    # Hugging Face counts epochs in parts: 1.25 is in the second one, and 2.0 is its end.
    epoch = max(1, math.ceil(float(match["epoch"] + match["part"]))) if match["part"] else int(match["epoch"])
    found: dict[str, Any] = {"epoch": epoch, "epochs": int(epochs) if epochs else None}
    if match["part"]:
        found["in_parts"] = True
    return found, text[: match.start()] + " " + text[match.end() :]


def _metrics(text: str) -> dict[str, float]:
    tested = _OF_TEST.match(text) is not None
    metrics = {}
    for match in _METRIC.finditer(text):
        part, name = (match["part"] or "").lower(), _NAMES.get(match["name"].lower(), match["name"].lower())
        value = float(match["value"])
        if match["of"] and int(match["of"]):
            value /= int(match["of"])
        elif name == "accuracy" and (match["percent"] or value > 1.0):
            value /= 100.0
        if part in _HELD_OUT:
            name = f"{part}_{name}"
        elif name == "loss" and tested:
            name = "test_loss"
        metrics[name] = value
    return metrics


def _boosting_metrics(text: str) -> dict[str, float]:
    return {f"{match['data']}-{match['name']}": float(match["value"]) for match in _BOOSTING_METRIC.finditer(text)}


_NAMES = {
    "acc": "accuracy",
    "acc@1": "accuracy",
    "acc1": "accuracy",
    "top1": "accuracy",
    "ppl": "perplexity",
    "learning_rate": "lr",
    "learning rate": "lr",
}
_HELD_OUT = frozenset({"val", "valid", "validation", "test", "eval"})


def _rate(text: str) -> float | None:
    match = _RATE.search(text)
    if match is None:
        return None
    value = float(match["rate"])
    if not 0 < value < float("inf"):
        return None
    seconds = _PER_SECOND.get(match["unit"])
    return value if seconds is None else seconds / value


def _scaled(text: str) -> int:
    """`1.20k` is 1200."""
    factor = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1])
    return round(float(text[:-1]) * factor) if factor else int(float(text))


_PER_SECOND = {"s/it": 1.0, "s/step": 1.0, "ms/step": 1e3, "us/step": 1e6}


def _speed(marks: tuple[tuple[float, int], ...]) -> float | None:
    (first, start), (last, end) = marks[0], marks[-1]
    return (end - start) / (last - first) if last > first and end > start else None
