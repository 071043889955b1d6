"""Learns to read handwritten digits, in as many processes as the job has replicas.

The data ships with scikit-learn, so nothing is downloaded. Every process trains on its own share of the images and
PyTorch's DistributedDataParallel averages their gradients over gloo. Rank 0 tests the model, prints the progress and
writes a checkpoint, from which an interrupted job resumes. A PyTorchJob sets the environment variables MASTER_ADDR,
MASTER_PORT, WORLD_SIZE and RANK of its pods; without them the program runs as one process.
"""
# ruff: noqa: E402 (the first line is printed before torch is imported)

import argparse
import math
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))

# Printed before torch is imported, which can take seconds on a busy machine.
print(f"Rank {RANK} of {WORLD_SIZE}: distributed PyTorch with gloo backend", flush=True)

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 7
TEST_IMAGES = 297
LOG_EVERY = 5  # batches


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(SEED)
    # The model is too small to profit from a second thread per process.
    torch.set_num_threads(1)
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    train_set, test_set = load_data()
    model = DigitsNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    first_epoch = resume(args, model, optimizer)
    replica = DistributedDataParallel(model) if WORLD_SIZE > 1 else model
    sampler: DistributedSampler[Any] = DistributedSampler(train_set, WORLD_SIZE, RANK, seed=SEED)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(first_epoch, args.epochs + 1):
        sampler.set_epoch(epoch)  # another order of the images in each epoch
        set_learning_rate(optimizer, args.lr * 0.5 * (1 + math.cos(math.pi * (epoch - 1) / args.epochs)))
        train_one_epoch(replica, loader, optimizer, epoch=epoch, total=len(train_set))
        if RANK == 0:
            print(f"accuracy={accuracy(model, test_set):.4f}", flush=True)
            save(checkpoint(args, model, optimizer, epoch), checkpoint_file(args))
    if RANK == 0:
        save(model.state_dict(), args.model_dir / "digits.pt")
        # After a finished training the next run starts from the beginning.
        checkpoint_file(args).unlink(missing_ok=True)
        print(f"Saved {args.model_dir / 'digits.pt'}", flush=True)
    if WORLD_SIZE > 1:
        dist.barrier()  # no process exits while a peer may still need it
        dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small convolutional network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default: 8)")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of the first epoch (default: 0.01)")
    parser.add_argument("--batch-size", type=int, default=24, help="images per step and process (default: 24)")
    parser.add_argument("--model-dir", type=Path, default=Path(), help="directory of the model (default: here)")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1")
    return args


class DigitsNet(nn.Module):
    """Two convolutions and two linear layers over 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layers(images)
        return scores


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1500 images for training and 297 for the test; the same split in every process."""
    table = torch.from_numpy(np.loadtxt(digits_file(), delimiter=",", dtype=np.float32))
    images, labels = table[:, :64].reshape(-1, 1, 8, 8) / 16.0, table[:, 64].long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def digits_file() -> Path:
    """The file behind sklearn.datasets.load_digits, found without importing scikit-learn.

    That import loads SciPy and takes about as long as importing torch, in every process.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("The digits come with scikit-learn, which this Python does not have: pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def train_one_epoch(
    model: nn.Module, loader: "DataLoader[Any]", optimizer: torch.optim.Optimizer, *, epoch: int, total: int
) -> None:
    model.train()
    for batch, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if RANK == 0 and batch % LOG_EVERY == 0:
            seen = batch * len(images) * WORLD_SIZE
            percent = 100 * seen / total
            print(f"Train Epoch: {epoch} [{seen}/{total} ({percent:.0f}%)] loss={loss.item():.4f}", flush=True)


def accuracy(model: nn.Module, test_set: TensorDataset) -> float:
    images, labels = test_set.tensors
    model.eval()
    with torch.no_grad():
        right = model(images).argmax(dim=1).eq(labels).sum().item()
    return float(right) / len(labels)


def resume(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Loads the checkpoint of an interrupted run into every process; returns the first epoch to train.

    Only rank 0 needs the volume: it broadcasts the checkpoint to the others.
    """
    state: list[Any] = [None]
    if RANK == 0 and checkpoint_file(args).exists():
        state = [torch.load(checkpoint_file(args), weights_only=True)]
    if WORLD_SIZE > 1:
        dist.broadcast_object_list(state, src=0)
    if state[0] is None or state[0]["settings"] != settings(args):
        return 1
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    if RANK == 0:
        print(f"Resuming after epoch {state[0]['epoch']}", flush=True)
    return int(state[0]["epoch"]) + 1


def checkpoint(
    args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int
) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "settings": settings(args),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }


def settings(args: argparse.Namespace) -> dict[str, float]:
    """A checkpoint is only used if it was written with the same settings."""
    return {"epochs": args.epochs, "lr": args.lr, "batch_size": args.batch_size}


def checkpoint_file(args: argparse.Namespace) -> Path:
    return Path(args.model_dir) / "digits.checkpoint.pt"


def save(state: dict[str, Any], file: Path) -> None:
    """Replaces the file atomically, so that a process that is killed meanwhile leaves the old one intact."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".tmp")
    torch.save(state, unfinished)
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    unfinished.replace(file)


if __name__ == "__main__":
    main()
