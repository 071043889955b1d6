"""Trains a network for handwritten digits with Horovod: processes share the images, gradients are averaged."""

import argparse

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

TRAINED = 1500


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.05)
    options = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)  # the model is too small to profit from a second one
    torch.manual_seed(7)

    images, digits = load_digits(return_X_y=True)
    images, digits = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(digits)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(TRAINED, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(60):
            mine = batch[hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            loss = cross_entropy(model(images[mine]), digits[mine])
            loss.backward()
            optimizer.step()
        mean = hvd.allreduce(loss.detach(), name="loss")
        if hvd.rank() == 0:
            print(f"[{epoch}/{options.epochs}] loss={mean:.4f}", flush=True)

    with torch.no_grad():
        found = model(images[TRAINED:])
    loss = cross_entropy(found, digits[TRAINED:])
    accuracy = (found.argmax(dim=1) == digits[TRAINED:]).float().mean()
    print(f"process {hvd.rank()} of {hvd.size()}: test loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
