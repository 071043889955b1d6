"""Log lines as real programs print them are read; any other text is ignored and never raises an error."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.insight.log_progress import Progress, Reading, advance, epochs_in_source, planned_epochs, read_line


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        (
            "Train Epoch: 1 [640/60000 (1%)]\tloss=2.2315",
            Reading(epoch=1, step=640, total=60000, metrics={"loss": 2.2315}),
        ),
        (
            "Train Epoch: 12 [58880/60000 (98%)]     Loss: 0.203600",
            Reading(epoch=12, step=58880, total=60000, metrics={"loss": 0.2036}),
        ),
        ("[640/60000 (1%)]\tLoss: 2.2", Reading(step=640, total=60000, metrics={"loss": 2.2})),
        ("accuracy=0.9665", Reading(metrics={"accuracy": 0.9665})),
        (
            "Test set: Average loss: 0.1015, Accuracy: 9665/10000 (97%)",
            Reading(metrics={"test_loss": 0.1015, "accuracy": 0.9665}),
        ),
        ("step 100/1000 loss: 0.5", Reading(step=100, total=1000, metrics={"loss": 0.5})),
        ("Step: 300, loss = 1e-3", Reading(step=300, metrics={"loss": 0.001})),
        ("Epoch 3/10", Reading(epoch=3, epochs=10)),
        (
            "Epoch [3/10], Step [200/600], Loss: 0.1",
            Reading(epoch=3, epochs=10, step=200, total=600, metrics={"loss": 0.1}),
        ),
        (
            "epoch 2:  45%|####5     | 450/1000 [00:10<00:12, 45.0it/s, loss=0.31]",
            Reading(epoch=2, step=450, total=1000, metrics={"loss": 0.31}, rate=45.0),
        ),
        ("  5%|5 | 5/100 [00:10<03:12, 2.00s/it]", Reading(step=5, total=100, rate=0.5)),
        ("1%|\r 50%|#####     | 1/2 [00:01<00:01,  1.50it/s]", Reading(step=1, total=2, rate=1.5)),
        (
            "{'loss': 0.52, 'learning_rate': 5e-05, 'epoch': 1.25}",
            Reading(epoch=2, metrics={"loss": 0.52, "lr": 5e-05}),
        ),
        ("val_loss: 0.25 - val_accuracy: 0.91", Reading(metrics={"val_loss": 0.25, "val_accuracy": 0.91})),
        ("Test loss: 0.25, eval acc 91%", Reading(metrics={"test_loss": 0.25, "eval_accuracy": 0.91})),
        ("Accuracy: 97.5%", Reading(metrics={"accuracy": 0.975})),
        ("acc: 97.5", Reading(metrics={"accuracy": 0.975})),
        ("\x1b[32mloss=0.5\x1b[0m", Reading(metrics={"loss": 0.5})),
        ("Epoch 1/5", Reading(epoch=1, epochs=5)),
        (
            "\x1b[1m12/100\x1b[0m \x1b[37m━━━━━━━━━━━\x1b[0m \x1b[1m3s\x1b[0m 20ms/step - accuracy: 0.91 - loss: 0.3",
            Reading(step=12, total=100, metrics={"accuracy": 0.91, "loss": 0.3}, rate=50.0),
        ),
        (
            "100/100 ━━━━━━━━━━━━━━━━━━━━ 3s 20ms/step - loss: 0.3 - val_accuracy: 0.92 - val_loss: 0.25",
            Reading(step=100, total=100, metrics={"loss": 0.3, "val_accuracy": 0.92, "val_loss": 0.25}, rate=50.0),
        ),
        (
            (
                "\r  1/100 [............] - ETA: 4:32 - loss: 7.2666 - accuracy: 0.0000e+00\b\b\b\b"
                "\r 12/100 [=>..........] - ETA: 8s - loss: 6.3295 - accuracy: 0.0000e+00\b\b\b\b"
            ),
            Reading(step=12, total=100, metrics={"loss": 6.3295, "accuracy": 0.0}),
        ),
        (
            "100/100 - 3s - loss: 0.3 - accuracy: 0.91 - 3s/epoch - 31ms/step",
            Reading(step=100, total=100, metrics={"loss": 0.3, "accuracy": 0.91}, rate=1000 / 31),
        ),
        ("INFO:tensorflow:loss = 0.3, step = 100 (1.2 sec)", Reading(step=100, metrics={"loss": 0.3})),
        (
            "step 20/63 [========>.....................] - loss: 2.1 - acc: 0.25 - 10ms/step",
            Reading(step=20, total=63, metrics={"loss": 2.1, "accuracy": 0.25}, rate=100.0),
        ),
        ("[3]\ttrain-rmse:0.10234\teval-rmse:0.2", Reading(step=3, metrics={"train-rmse": 0.10234, "eval-rmse": 0.2})),
        (
            "[20:18:24] [18]\ttrain-rmse:0.00208\teval-rmse:0.00208",
            Reading(step=18, metrics={"train-rmse": 0.00208, "eval-rmse": 0.00208}),
        ),
        ("[0]\ttest-ndcg@5-:0.5+0.01", Reading(step=0, metrics={"test-ndcg@5-": 0.5})),
        ("[10]\tvalid_0's binary_logloss: 0.61", Reading(step=10, metrics={"valid_0-binary_logloss": 0.61})),
    ],
)
def test_known_formats_are_read(line: str, reading: Reading) -> None:
    assert read_line(line) == reading


@pytest.mark.parametrize(
    "tag",
    [
        "[0]<stdout>:",
        "[12]<stderr>:",
        "Mon Nov 16 09:18:05 2026[0]<stdout>:",
        "[1,0]<stdout>:",
        "[prterun-launcher-7@1,0]<stdout>: ",
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "12/100 [==>...........] - ETA: 3s - loss: 0.3",
        "[3] train-logloss:0.10234",
        "Test set: Average loss: 0.1015, Accuracy: 9665/10000 (97%)",
        "[5/200] loss=0.5",
    ],
)
def test_tags_of_horovodrun_and_mpirun_do_not_change_what_is_read(tag: str, line: str) -> None:
    assert read_line(line) is not None
    assert read_line(tag + line) == read_line(line)


def test_a_loss_that_is_not_a_number_is_read_as_such() -> None:
    reading = read_line("Train Epoch: 1 [0/60000 (0%)]\tloss=nan")
    assert reading is not None
    assert math.isnan(reading.metrics["loss"])


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\r\n",
        "Using distributed PyTorch with gloo backend",
        "Downloading http://example.com/train-images-idx3-ubyte.gz",
        "the glossary=3 is not a metric",
        "2026-11-15 04:05:06 INFO started on port 23456",
        "[19:43:23] Rank 0",
        "[2] rabit: connected to peer-1:9999",
        "LAUNCH INFO 2026-11-15 19:43:23,120 Run Pod: ybcydg, replicas 1, status ready",
        "1/2 - the first half",
        "profit and loss 3 times",
        "downloaded 450it of text",
        "Loss of connection after 2 retries",
    ],
)
def test_other_lines_are_ignored(line: str) -> None:
    assert read_line(line) is None


def rows_of_the_page() -> list[tuple[str, str]]:
    """The lines and what is read from them, in docs/reference/progress.md."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "progress.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and "`" in line]
    return [(line.strip("`").replace("\\|", "|"), read.removesuffix(" |")) for _, line, read in rows]


def described(reading: Reading) -> str:
    """As in the page: `epoch 3/10, step 200/600, loss 0.1, 45/s`."""
    parts = []
    for name, number, of in (("epoch", reading.epoch, reading.epochs), ("step", reading.step, reading.total)):
        if number is not None:
            parts.append(f"{name} {number}/{of}" if of else f"{name} {number}")
    parts += [f"{name} {value:g}" for name, value in reading.metrics.items()]
    return ", ".join([*parts, *([f"{reading.rate:g}/s"] if reading.rate else [])])


@pytest.mark.parametrize(("line", "read"), rows_of_the_page())
def test_the_formats_of_the_page_are_read(line: str, read: str) -> None:
    reading = read_line(line)
    assert reading is not None
    assert described(reading) == read


def test_epochs_that_are_counted_from_zero_are_shown_from_one() -> None:
    progress = Progress(epochs=10)
    for epoch in (0, 1):
        progress = advance(progress, Reading(epoch=epoch, epochs=9, step=50, total=100), at=float(epoch))
    assert (progress.epoch, progress.epochs) == (2, 10)
    assert progress.fraction == pytest.approx(0.15)


def after(*lines: str, start: Progress | None = None) -> Progress:
    progress = start or Progress()
    for at, line in enumerate(lines):
        progress = advance(progress, read_line(line) or Reading(), float(at))
    return progress


def test_the_number_of_epochs_is_that_of_the_line_also_if_they_are_counted_from_zero() -> None:
    progress = after("Epoch 0/3", "Epoch 1/3", "Epoch 2/3", "step 100/100")
    assert (progress.epoch, progress.epochs, progress.fraction) == (3, 3, 1.0)
    assert after("Epoch 0/2", "Epoch 1/2", "Epoch 2/2").epochs == 3


def test_a_program_that_trains_longer_than_planned_has_an_unknown_number_of_epochs() -> None:
    progress = after("epoch 3 loss 0.5", "step 50/100", start=Progress(epochs=2))
    assert (progress.epochs, progress.fraction, progress.is_of_epoch) == (None, 0.5, True)


@pytest.mark.parametrize(
    ("source", "epochs"),
    [
        ("trainer = L.Trainer(max_epochs=3, devices=1)  # max_epochs=100 takes an hour", 3),
        ("Trainer(max_epochs=args.epochs)", None),
        ("Trainer(max_epochs=3 if quick else 9)\nTrainer(max_epochs=9)", None),
        ("", None),
    ],
)
def test_the_number_of_epochs_of_lightning_is_read_from_the_program(source: str, epochs: int | None) -> None:
    assert epochs_in_source(source) == epochs


TRAINING = "Epoch 0:  50%|█████     | 50/100 [00:01<00:01, 50.00it/s, v_num=0, train_loss=0.5]"


@pytest.mark.parametrize(
    "other",
    [
        "Sanity Checking DataLoader 0:  50%|█████     | 1/2 [00:00<00:00, 70.00it/s]",
        "Validation DataLoader 0:  10%|█         | 1/10 [00:00<00:00, 70.00it/s]",
        "Epoch 0 [val]:  10%|█         | 1/10 [00:00<00:00, 70.00it/s]",
        "Evaluating:  10%|█         | 1/10 [00:00<00:00, 70.00it/s]",
        " 10%|█         | 1/10 [00:00<00:00, 70.00it/s]",
        "Loading checkpoint shards:  10%|█         | 1/10 [00:00<00:00, 70.00it/s]",
    ],
)
def test_a_bar_beside_that_of_the_training_does_not_change_the_progress(other: str) -> None:
    assert after(TRAINING, other) == after(TRAINING)


def test_a_bar_of_other_work_counts_for_its_metrics_and_is_no_progress() -> None:
    assert read_line("Validation:  50%|█████     | 1/2 [00:00<00:00, val_loss=0.25]") == Reading(
        metrics={"val_loss": 0.25}
    )
    assert read_line("Downloading data:  50%|█████     | 1/2 [00:00<00:00, 70.00it/s]") is None


def test_the_bar_of_hugging_face_is_that_of_all_epochs_and_stays_during_evaluation() -> None:
    lines = [
        " 33%|███▎      | 100/300 [00:10<00:20, 10.0it/s]",
        "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 1.0}",
        " 50%|█████     | 5/10 [00:00<00:00, 70.00it/s]",
        "{'eval_loss': 0.41, 'epoch': 1.0}",
        "{'loss': 0.4, 'epoch': 1.01}",
    ]
    for count in range(1, len(lines) + 1):
        assert after(*lines[:count], start=Progress(epochs=3)).fraction == pytest.approx(1 / 3)


def test_a_bar_of_epochs_around_a_bar_of_steps_gives_the_progress_of_the_training() -> None:
    lines = ["Epochs:  50%|█████     | 2/4 [00:10<00:10, 5.0s/it]", " 50%|█████     | 50/100 [00:10<00:20, 10.0it/s]"]
    progress = after(*lines)
    assert (progress.epoch, progress.epochs, progress.fraction) == (3, 4, 0.625)


def test_a_bar_that_follows_a_finished_one_is_progress() -> None:
    progress = after("100%|██████████| 200/200 [00:10<00:00]", " 50%|█████     | 50/100 [00:10<00:20, 10.0it/s]")
    assert progress.fraction == 0.5


@given(st.text() | st.from_regex(r"(epoch|step|loss|acc)[ :=\[]*[0-9./%|e+-]{0,60}", fullmatch=True))
def test_any_text_can_be_read(line: str) -> None:
    reading = read_line(line)
    if reading is not None:
        progress = advance(Progress(), reading, at=1.0)
        assert progress.fraction is None or 0.0 <= progress.fraction <= 1.0


@given(
    epoch=st.integers(1, 999),
    step=st.integers(0, 10**9),
    total=st.integers(1, 10**9),
    loss=st.floats(0, 1e6).map(lambda value: round(value, 4)),
)
def test_every_line_in_the_format_of_the_examples_is_read(epoch: int, step: int, total: int, loss: float) -> None:
    line = f"Train Epoch: {epoch} [{step}/{total} ({100 * step / total:.0f}%)] loss={loss:.4f}"
    assert read_line(line) == Reading(epoch=epoch, step=step, total=total, metrics={"loss": loss})


def test_a_very_long_line_takes_no_time() -> None:
    assert read_line("[" * 100_000 + "epoch " * 100_000) is None


def test_progress_is_that_of_the_whole_training_if_the_epochs_are_known() -> None:
    progress = Progress(epochs=4)
    progress = advance(progress, Reading(epoch=3, step=50, total=100), at=0.0)
    assert progress.fraction == pytest.approx(0.625)


def test_progress_is_that_of_the_epoch_otherwise() -> None:
    progress = advance(Progress(), Reading(epoch=3, step=50, total=100), at=0.0)
    assert progress.fraction == pytest.approx(0.5)
    assert advance(Progress(), Reading(metrics={"loss": 1.0}), at=0.0).fraction is None


def test_metrics_are_kept_until_replaced() -> None:
    progress = advance(Progress(), Reading(epoch=1, step=1, total=2, metrics={"loss": 2.0}), at=0.0)
    progress = advance(progress, Reading(metrics={"accuracy": 0.5}), at=1.0)
    progress = advance(progress, Reading(epoch=2, step=1, total=2, metrics={"loss": 1.0}), at=2.0)
    assert progress.metrics == {"loss": 1.0, "accuracy": 0.5}
    assert (progress.epoch, progress.step, progress.total) == (2, 1, 2)


def test_a_new_epoch_begins_without_a_step() -> None:
    progress = advance(Progress(), Reading(epoch=1, step=90, total=100), at=0.0)
    assert advance(progress, Reading(epoch=2), at=1.0).step is None


def test_a_line_of_metrics_within_an_epoch_keeps_the_step_of_the_bar() -> None:
    progress = Progress()
    for at, line in enumerate(["{'loss': 0.6, 'epoch': 1.1}", " 30%|###  | 3/10", "{'loss': 0.5, 'epoch': 1.3}"]):
        progress = advance(progress, read_line(line) or Reading(), float(at))
    assert (progress.step, progress.total, progress.metrics) == (3, 10, {"loss": 0.5})


def test_speed_is_measured_across_epochs() -> None:
    progress = advance(Progress(), Reading(epoch=1, step=900, total=1000), at=10.0)
    assert progress.speed is None
    progress = advance(progress, Reading(epoch=2, step=100, total=1000), at=12.0)
    assert progress.speed == pytest.approx(100.0)


def test_after_a_restart_speed_is_measured_again() -> None:
    progress = advance(Progress(), Reading(epoch=2, step=900, total=1000), at=10.0)
    progress = advance(progress, Reading(epoch=1, step=0, total=1000), at=50.0)
    progress = advance(progress, Reading(epoch=1, step=100, total=1000), at=51.0)
    assert progress.speed == pytest.approx(100.0)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6)), min_size=1, max_size=80))
def test_speed_is_never_negative_and_memory_is_bounded(marks: list[tuple[float, int]]) -> None:
    progress = Progress()
    for at, step in sorted(marks):
        progress = advance(progress, Reading(step=step, total=10**6), at=at)
    assert progress.speed is None or progress.speed > 0
    assert len(progress.marks) <= 32


@pytest.mark.parametrize(
    ("arguments", "epochs"),
    [
        (["python", "train.py", "--epochs=8"], 8),
        (["python", "train.py", "--epochs", "3", "--lr=0.1"], 3),
        (["--num_train_epochs=2"], 2),
        (["--num-epochs", "5"], 5),
        (["--max_epochs=5"], 5),
        (["fit", "--trainer.max_epochs", "5"], 5),
        (["--epochs=many"], None),
        (["--warmup-epochs=2"], None),
        ([], None),
    ],
)
def test_the_number_of_epochs_is_read_from_the_command_line(arguments: list[str], epochs: int | None) -> None:
    assert planned_epochs(arguments) == epochs
