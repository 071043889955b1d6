"""Learns to read handwritten digits in a number of processes that may change while it trains.

torchrun starts this program again in all workers when one of them is lost or joins. Every worker keeps a snapshot of
the model on its own disk; after a start the newest one is sent to all. So no shared storage is needed.
"""

import argparse
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

TRAINED = 1500
BATCH = 60
"""Images per step in all processes together: the training does not depend on their number."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--snapshot", type=Path, default=Path("snapshot.pt"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # the model is too small to profit from a second one
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    images, digits = load_digits()
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    done = restore(options.snapshot, model, optimizer)
    if rank == 0:
        print(f"Training with {world} workers, after {done} epochs", flush=True)

    replica = DistributedDataParallel(model)
    for epoch in range(done + 1, options.epochs + 1):
        order = torch.randperm(TRAINED, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH):
            mine = batch[rank::world]
            optimizer.zero_grad()
            loss = cross_entropy(replica(images[mine]), digits[mine])
            loss.backward()
            optimizer.step()
        save(options.snapshot, model, optimizer, epoch)
        if rank == 0:
            print(f"[{epoch}/{options.epochs}] loss={loss.item():.4f}", flush=True)

    with torch.no_grad():
        found = model(images[TRAINED:])
    loss = cross_entropy(found, digits[TRAINED:])
    accuracy = (found.argmax(dim=1) == digits[TRAINED:]).float().mean()
    print(f"worker {rank} of {world}: test loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
    dist.barrier()  # no process exits while a peer may still need it
    dist.destroy_process_group()


def load_digits() -> tuple[Tensor, Tensor]:
    """The images of scikit-learn, read without importing it: that takes as long as importing torch, at every start."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("The digits come with scikit-learn, which this Python does not have: pip install scikit-learn")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    return table[:, :64] / 16, table[:, 64].long()


def restore(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Takes the newest snapshot of all workers; the number of epochs that it has been trained for."""
    mine = torch.load(file, weights_only=True) if file.exists() else None
    epochs: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(epochs, mine["epoch"] if mine else 0)
    newest = max(epochs)
    if newest == 0:
        return 0
    box = [mine]
    dist.broadcast_object_list(box, src=epochs.index(newest))
    assert box[0] is not None
    model.load_state_dict(box[0]["model"])
    optimizer.load_state_dict(box[0]["optimizer"])
    return int(newest)


def save(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Replaces the file at once, so that a process that is killed meanwhile leaves the old one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    unfinished.replace(file)


if __name__ == "__main__":
    main()
