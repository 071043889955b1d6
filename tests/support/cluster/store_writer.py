"""A process that writes to a store as fast as it can and prints every acknowledged write, until it is killed."""

import asyncio
import sys
from pathlib import Path

from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed, Stored
from trainwright.objects import Object

WRITERS = 8


async def main(path: Path) -> None:
    store = ObjectStore(path)
    await asyncio.gather(*(_write_for_ever(store, f"writer-{number}") for number in range(WRITERS)))


async def _write_for_ever(store: ObjectStore, name: str) -> None:
    """Creates, updates and removes the same object; each line is `NAME COUNT VERSION`, COUNT 0 for removed."""
    count = 0
    while True:
        count += 1
        remove = count % 5 == 0

        def decide(current: Stored | None, count: int = count, remove: bool = remove) -> Object | Removed:
            if remove and current is not None:
                return Removed(current.obj)
            return {"metadata": {"name": name, "namespace": "ns"}, "count": count}

        change = await store.guaranteed_update("things", "ns", name, decide)
        assert change is not None
        sys.stdout.write(f"{name} {0 if change.removed else count} {change.version}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
