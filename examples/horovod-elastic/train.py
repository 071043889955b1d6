"""Trains a network for handwritten digits with elastic Horovod: workers may join and leave while it trains.

The state is kept in memory: a process that joins gets it from the others. After a worker was lost the others go back to
the last commit.
"""

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

TRAINED = 1500
BATCH = 60
"""Images per step in all processes together: the training does not depend on their number."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.05)
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)  # the model is too small to profit from a second one
    torch.manual_seed(7)

    images, digits = load_digits(return_X_y=True)
    images, digits = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(digits)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0)
    train(state, images[:TRAINED], digits[:TRAINED], options.epochs)

    with torch.no_grad():
        found = model(images[TRAINED:])
    loss = cross_entropy(found, digits[TRAINED:])
    accuracy = (found.argmax(dim=1) == digits[TRAINED:]).float().mean()
    print(f"process {hvd.rank()} of {hvd.size()}: test loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState, images: Tensor, digits: Tensor, epochs: int) -> None:
    """Called again with the same state whenever workers have joined or left."""
    if hvd.rank() == 0:
        print(f"Training with {hvd.size()} workers, after {state.epoch} epochs", flush=True)
    while state.epoch < epochs:
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(state.epoch))
        for batch in order.split(BATCH):
            mine = batch[hvd.rank() :: hvd.size()]
            state.optimizer.zero_grad()
            loss = cross_entropy(state.model(images[mine]), digits[mine])
            loss.backward()
            state.optimizer.step()
        state.epoch += 1
        if hvd.rank() == 0:
            print(f"[{state.epoch}/{epochs}] loss={loss.item():.4f}", flush=True)
        state.commit()


if __name__ == "__main__":
    main()
