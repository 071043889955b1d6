"""A small DDP training program in which one rank fails as its arguments say: `program.py --fault value-error --rank 1`.

`faults.yaml` lists the faults with the rank and the cause that the analysis must name. The program runs under
`python` with the environment of a PyTorchJob, and under `torchrun`.
"""

import argparse
import atexit
import ctypes
import errno
import json
import logging
import mmap
import os
import pickle
import queue
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

STEPS, FAULTY_STEP = 200, 3
LONG, SHORT = timedelta(seconds=120), timedelta(seconds=6)
"""How long ranks wait for each other; short where the fault is that they wait in vain."""

Fault = Callable[[], object]
FAULTS: dict[str, dict[str, Fault]] = {"start": {}, "init": {}, "step": {}, "backward": {}}
"""By stage: before torch is imported, before the ranks meet, in a step of the training, in its backward pass."""
IMPATIENT = {"barrier-timeout", "never-joins", "slow-culprit", "unreachable-master", "world-size-of-all-ranks"}


def at(stage: str, name: str) -> Callable[[Fault], Fault]:
    def register(fault: Fault) -> Fault:
        FAULTS[stage][name] = fault
        return fault

    return register


# Exceptions of the program


@at("start", "value-error-at-once")
@at("init", "value-error-before-init")
@at("step", "value-error")
@at("step", "verbose-peers")
@at("step", "peers-hide-the-cause")
@at("step", "silent-peers")
@at("backward", "value-error-in-backward")
def value_error() -> None:
    raise ValueError("label 11 is out of range")


@at("step", "key-error")
def key_error() -> None:
    {"images": 1}["labels"]


@at("step", "shape-mismatch")
def shape_mismatch() -> None:
    import torch

    torch.ones(4, 8) @ torch.ones(9, 2)


@at("step", "assertion")
def assertion() -> None:
    batch: list[int] = []
    assert batch, "the batch is empty"


@at("step", "dataloader-worker")
def dataloader_worker() -> None:
    from torch.utils.data import DataLoader

    dataset: Any = BrokenDataset()
    next(iter(DataLoader(dataset, num_workers=1)))


class BrokenDataset:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        raise IndexError(f"sample {index} is missing")


@at("step", "chained")
def chained() -> None:
    try:
        int("seven")
    except ValueError as error:
        raise RuntimeError("row 7 of the table is not readable") from error


@at("step", "long-message")
def long_message() -> None:
    raise ValueError("unexpected keys: " + ", ".join(f"layer{number}.weight" for number in range(20_000)))


@at("step", "several-lines")
def several_lines() -> None:
    raise ValueError("the configuration is invalid:\n  - lr must be positive\n  - epochs must be an integer")


@at("step", "logged-exception")
def logged_exception() -> None:
    try:
        value_error()
    except ValueError:
        logging.exception("training failed")
        sys.exit(1)


@at("step", "thread")
def thread() -> None:
    """A loader thread fails; the program notices it."""
    batches: queue.Queue[object] = queue.Queue()

    def load() -> None:
        batches.put(open("/nonexistent/shard-3.bin", "rb"))  # noqa: PTH123, SIM115

    threading.Thread(target=load, name="loader").start()
    try:
        batches.get(timeout=1)
    except queue.Empty:
        raise RuntimeError("the loader thread has ended") from None


@at("step", "after-much-output")
def after_much_output() -> None:
    for number in range(20_000):
        print(f"sample {number} has been read from the archive and decoded")
    value_error()


@at("step", "output-after-it")
def output_after_it() -> None:
    """Shutdown hooks print a lot after the traceback."""

    def report() -> None:
        for number in range(400):
            print(f"profiler: operator {number} took 0.1 ms")

    atexit.register(report)
    value_error()


@at("step", "not-utf-8")
def not_utf_8() -> None:
    sys.stdout.flush()
    os.write(1, b"caf\xe9 \xff\xfe\x00 \xc3\x28\n")
    value_error()


@at("step", "slow-culprit")
def slow_culprit() -> None:
    """Its peers time out while its shutdown hook still uploads something."""
    atexit.register(time.sleep, 9)
    value_error()


@at("step", "failed-command")
def failed_command() -> None:
    subprocess.run(["sh", "-c", "echo tokenizer: bad vocabulary >&2; exit 4"], check=True)


# Files, data and models


@at("start", "missing-module")
def missing_module() -> None:
    import flash_attention_9  # type: ignore[import-not-found] # noqa: F401


@at("step", "missing-file")
def missing_file() -> None:
    Path("data/train.csv").read_text()


@at("start", "missing-program")
def missing_program() -> None:
    os.execv(sys.executable, [sys.executable, "trian.py"])


@at("start", "command-not-found")
def command_not_found() -> None:
    os.execv("/bin/sh", ["sh", "-c", "trochrun train.py"])


@at("start", "syntax-error")
def syntax_error() -> None:
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "train.py")
        script.write_text("import os\n\ndef main(:\n    pass\n")
        sys.exit(subprocess.run([sys.executable, str(script)], check=False).returncode)


@at("start", "indentation-error")
def indentation_error() -> None:
    compile("def main():\npass\n", "train.py", "exec")


@at("init", "disk-full")
@at("step", "disk-full-at-checkpoint")
def disk_full() -> None:
    with open("/dev/full", "wb") as file:  # noqa: PTH123
        file.write(b"x" * 100_000)


@at("step", "permission-denied")
def permission_denied() -> None:
    Path("/proc/sys/kernel/ostype").write_text("x")


@at("step", "read-only")
def read_only() -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/models/digits.pt")


@at("init", "broken-checkpoint")
def broken_checkpoint() -> None:
    import torch

    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory, "epoch-3.pt")
        checkpoint.write_bytes(pickle.dumps({"epoch": 3})[:10] + b"\x00\x01 half a file")
        torch.load(checkpoint)


@at("init", "state-dict-mismatch")
def state_dict_mismatch() -> None:
    import torch

    torch.nn.Linear(4, 2).load_state_dict(torch.nn.Linear(8, 2).state_dict())


@at("init", "missing-token")
def missing_token() -> None:
    raise OSError(
        "You are trying to access a gated repo.\nMake sure to have access to it at "
        "https://huggingface.co/meta-llama/Llama-3-8B.\n401 Client Error. (Request ID: Root=1-6561)\n\n"
        "Cannot access gated repo for url https://huggingface.co/meta-llama/Llama-3-8B/resolve/main/config.json.\n"
        "Access to model meta-llama/Llama-3-8B is restricted. You must have access to it and be authenticated to "
        "access it. Please log in."
    )


@at("init", "no-gpu")
def no_gpu() -> None:
    import torch

    torch.zeros(1).cuda()


@at("step", "nan-loss")
def nan_loss() -> None:
    print("Train Epoch: 1 [640/60000 (1%)]\tloss=nan", flush=True)
    raise FloatingPointError("loss is nan at step 3")


# Memory


@at("step", "memory-error")
def memory_error() -> None:
    _limit_memory()
    bytearray(1 << 40)


@at("step", "allocator")
def allocator() -> None:
    import torch

    torch.empty(1 << 50, dtype=torch.uint8)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))


# Exit codes and signals


@at("start", "bad-argument")
def bad_argument() -> None:
    parser = argparse.ArgumentParser("train.py")
    parser.add_argument("--epochs", type=int)
    parser.parse_args(["--epochs", "three"])


@at("step", "exit-3")
def exit_3() -> None:
    sys.exit(3)


@at("step", "exit-with-message")
def exit_with_message() -> None:
    sys.exit("error: the dataset is empty")


@at("step", "exit-0")
@at("init", "exit-0-before-init")
def exit_0() -> None:
    os._exit(0)


@at("step", "sigkill")
@at("init", "sigkill-before-init")
def sigkill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@at("step", "sigsegv")
def sigsegv() -> None:
    ctypes.string_at(0)


@at("step", "sigabrt")
def sigabrt() -> None:
    os.abort()


@at("step", "native-exception")
def native_exception() -> None:
    text = "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check\n"
    os.write(2, text.encode())
    os.abort()


@at("step", "sigterm")
def sigterm() -> None:
    """From outside the program."""
    subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -TERM {os.getpid()}"])
    time.sleep(60)


@at("step", "keyboard-interrupt")
def keyboard_interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


# Ranks that do not find each other


@at("init", "port-in-use")
def port_in_use() -> None:
    """Another listener has the port of the rendezvous."""
    taken = socket.socket()
    taken.bind(("", int(os.environ["MASTER_PORT"])))
    taken.listen()
    globals()["_taken"] = taken


@at("step", "metrics-port-in-use")
def metrics_port_in_use() -> None:
    first, second = socket.socket(), socket.socket()
    first.bind(("127.0.0.1", 0))
    first.listen()
    second.bind(first.getsockname())


@at("init", "unreachable-master")
def unreachable_master() -> None:
    os.environ["MASTER_PORT"] = "9"


@at("init", "unknown-master")
def unknown_master() -> None:
    socket.create_connection(("digits-master-0.nowhere.invalid", 23456))


@at("step", "barrier-timeout")
@at("init", "never-joins")
def sleep_too_long() -> None:
    time.sleep(60)


# Written after the others and scored once: later.yaml


@at("step", "unicode-error")
def unicode_error() -> None:
    b"caf\xe9".decode()


@at("step", "recursion")
def recursion() -> None:
    recursion()


@at("step", "exception-group")
def exception_group() -> None:
    raise ExceptionGroup("2 shards failed", [OSError("shard 3 is truncated"), OSError("shard 5 is truncated")])


@at("step", "sigbus")
def sigbus() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        memory = mmap.mmap(file.fileno(), 4096)
        file.truncate(0)
        memory[0] = 1


@at("step", "sigill")
def sigill() -> None:
    signal.raise_signal(signal.SIGILL)


@at("step", "logged-and-exit-5")
def logged_and_exit_5() -> None:
    try:
        {"images": 1}["labels"]
    except KeyError:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(5)


@at("step", "too-many-files")
def too_many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    [open("/dev/null") for _ in range(100)]  # noqa: PTH123, SIM115


@at("init", "broken-configuration")
def broken_configuration() -> None:
    json.loads('{"lr": 0.1,}')


@at("step", "sigalrm")
def sigalrm() -> None:
    signal.alarm(1)
    time.sleep(60)


@at("init", "exit-7")
def exit_7() -> None:
    os._exit(7)


# The program


def fail_if_due(arguments: argparse.Namespace, stage: str) -> None:
    if stage in FAULTS and arguments.fault in FAULTS[stage] and int(os.environ["RANK"]) == arguments.rank:
        FAULTS[stage][arguments.fault]()


def train(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if arguments.fault == "world-size-of-all-ranks":
        os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) + 1)
    fail_if_due(arguments, "init")
    dist.init_process_group("gloo", timeout=SHORT if arguments.fault in IMPATIENT else LONG)
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    class FaultyBackward(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, values: Any) -> Any:
            return values.clone()

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            fail_if_due(arguments, "backward")
            return gradient

    for step in range(STEPS):
        if step == FAULTY_STEP:
            fail_if_due(arguments, "step")
        outputs: Any = FaultyBackward.apply(model(torch.ones(8, 4)))  # type: ignore[no-untyped-call]
        loss = outputs.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"Train Epoch: 1 [{step}/{STEPS} ({100 * step // STEPS}%)]\tloss={loss.item():.4f}", flush=True)
        time.sleep(0.01)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", required=True)
    parser.add_argument("--rank", type=int, default=-1)
    arguments = parser.parse_args()
    fail_if_due(arguments, "start")
    mine = int(os.environ["RANK"]) == arguments.rank
    try:
        train(arguments)
    except Exception as error:
        if mine:
            raise
        # How programs report what their peers have caused.
        if arguments.fault == "verbose-peers":
            logging.exception("rank %s: the training failed", os.environ["RANK"])
            for number in range(100):
                print(f"ERROR state of the optimizer: group {number} has 12 parameters", file=sys.stderr)
            raise
        if arguments.fault == "peers-hide-the-cause":
            print(f"ERROR {error}", file=sys.stderr)
            raise RuntimeError("the training is aborted") from None
        if arguments.fault == "silent-peers":
            sys.exit(1)
        raise


if __name__ == "__main__":
    main()
