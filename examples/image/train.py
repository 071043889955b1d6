"""A program that an image brings along: it needs nothing but Python."""

import os

for epoch in range(int(os.environ.get("EPOCHS", "1"))):
    print(f"epoch {epoch + 1} loss={1 / (epoch + 1):.4f}")
