"""The store: increasing versions, changes that replay to the current state, durable writes."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.disks import fill, small_disk
from tests.support.waiting import eventually
from trainwright.cluster.apiserver.storage import store as store_module
from trainwright.cluster.apiserver.storage.journal import FORMAT, StoreError
from trainwright.cluster.apiserver.storage.store import Change, ObjectStore, Removed, ResourceVersionTooOld, Stored
from trainwright.objects import Object


def thing(name: str, **fields: object) -> Object:
    return {"metadata": {"name": name, "namespace": "ns"}, **fields}


async def put(store: ObjectStore, name: str, **fields: object) -> Change | None:
    return await store.guaranteed_update("things", "ns", name, lambda _old: thing(name, **fields))


async def remove(store: ObjectStore, name: str) -> Change | None:
    def decide(old: Stored | None) -> Removed:
        assert old is not None
        return Removed(old.obj)

    return await store.guaranteed_update("things", "ns", name, decide)


def unchanged(old: Stored | None) -> Object:
    assert old is not None
    return old.obj


async def test_other_users_cannot_read_the_files(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "store.db")
    await put(store, "a")
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "store.db": 0o600,
        "store.db-wal": 0o600,
        "store.db-shm": 0o600,
    }
    store.close()


def contents(store: ObjectStore) -> dict[str, object]:
    return {stored.key[1]: stored.obj.get("value") for stored in store.list("things")}


operations = st.lists(st.tuples(st.sampled_from(["put", "remove", "same"]), st.sampled_from("abcd"), st.integers()))


class TestModel:
    @given(operations)
    async def test_changes_replay_to_the_current_state(self, steps: list[tuple[str, str, int]]) -> None:
        store = ObjectStore(None)
        model: dict[str, int] = {}
        moments = [(store.version, dict(model))]
        seen: list[Change] = []
        store.subscribe("things", seen.append)
        for step, name, value in steps:
            before = store.version
            if step == "put":
                await put(store, name, value=value)
                model[name] = value
            elif step == "remove" and name in model:
                await remove(store, name)
                del model[name]
            else:
                if name in model:
                    assert await store.guaranteed_update("things", "ns", name, unchanged) is None
                assert store.version == before
                continue
            assert store.version == before + 1
            moments.append((store.version, dict(model)))
        assert contents(store) == model
        assert [change.version for change in seen] == [version for version, _ in moments[1:]]
        for version, state in moments:
            assert self.replayed(state, store.changes_since("things", version)) == model
            assert {one.key[1]: one.obj["value"] for one in store.list_at("things", version)} == state

    def replayed(self, state: dict[str, int], changes: object) -> dict[str, int]:
        state = dict(state)
        assert isinstance(changes, list)
        for change in changes:
            name = change.new.key[1]
            assert (change.old is not None) is (name in state)
            if change.removed:
                del state[name]
            else:
                state[name] = change.new.obj["value"]
        return state


class TestDurability:
    async def test_a_restart_keeps_objects_and_versions(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        first = ObjectStore(path)
        await put(first, "a", value=1)
        await put(first, "b", value=2)
        gone = await remove(first, "b")
        assert gone is not None
        first.close()
        second = ObjectStore(path)
        assert contents(second) == {"a": 1}
        assert second.version == gone.version
        change = await put(second, "c", value=3)
        assert change is not None
        assert change.version > gone.version
        with pytest.raises(ResourceVersionTooOld):
            second.changes_since("things", gone.version - 1)
        assert [one.new.key[1] for one in second.changes_since("things", gone.version)] == ["c"]
        second.close()

    async def test_write_is_visible_only_after_its_commit(self, tmp_path: Path) -> None:
        store = ObjectStore(tmp_path / "store.db")
        committed = asyncio.Event()
        store.subscribe("things", lambda _change: committed.set())
        writing = asyncio.create_task(put(store, "a", value=1))
        await asyncio.sleep(0)
        assert store.get("things", "ns", "a") is None
        await writing
        assert committed.is_set()
        with sqlite3.connect(tmp_path / "store.db") as reader:
            assert reader.execute("SELECT name FROM objects").fetchall() == [("a",)]
        reader.close()
        store.close()

    async def test_cancelled_caller_does_not_stop_a_write(self, tmp_path: Path) -> None:
        store = ObjectStore(tmp_path / "store.db")
        writing = asyncio.create_task(put(store, "a", value=1))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert contents(store) == {"a": 1}
        store.close()

    async def test_writers_of_one_object_are_serialized(self, tmp_path: Path) -> None:
        store = ObjectStore(tmp_path / "store.db")

        def count(old: Stored | None) -> Object:
            return thing("a", value=(old.obj["value"] if old else 0) + 1)

        await asyncio.gather(*(store.guaranteed_update("things", "ns", "a", count) for _ in range(50)))
        assert contents(store) == {"a": 50}
        store.close()

    async def test_failed_commit_raises_and_changes_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        store = ObjectStore(path)
        await put(store, "a", value=1)
        with sqlite3.connect(path, isolation_level=None) as intruder:
            intruder.execute("DROP TABLE clock")
        intruder.close()
        with pytest.raises(StoreError, match=r"store\.db: cannot write: .*; free some disk space"):
            await put(store, "b", value=2)
        assert contents(store) == {"a": 1}
        store.close()

    async def test_writes_find_room_when_the_disk_is_full(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk", size="20m") as disk:
            path = disk / "store.db"
            store = ObjectStore(path)

            async def size() -> int:
                return path.stat().st_size

            await eventually(size, lambda size: size > 4 * 1024 * 1024)
            fill(disk / "filler")
            for number in range(2000):
                await put(store, f"thing-{number % 100}", value=number)
            store.close()
            reopened = ObjectStore(path)
            assert contents(reopened) == {f"thing-{number % 100}": number for number in range(1900, 2000)}
            reopened.close()

    def test_kill_9_loses_nothing_that_was_acknowledged(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        command = [sys.executable, "-m", "tests.support.cluster.store_writer", str(path)]
        newest = 0
        for _ in range(2):
            writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(200)]
            writer.kill()
            # Whole lines in the pipe were acknowledged; a partial line was not.
            lines += [line for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
            writer.wait()
            writer.stdout.close()
            newest = self.check(path, [line.split() for line in lines], newest)

    def check(self, path: Path, acknowledged: list[list[str]], newest: int) -> int:
        versions = [int(version) for _, _, version in acknowledged]
        assert len(set(versions)) == len(versions)
        assert min(versions) > newest
        store = ObjectStore(path)
        last = {name: (int(count), int(version)) for name, count, version in acknowledged}
        for name, (count, version) in last.items():
            stored = store.get("things", "ns", name)
            # A later write may have been committed without acknowledgement; an earlier state must not reappear.
            if stored is None:
                assert count == 0 or store.version > version
            else:
                assert stored.version >= version
                assert stored.version > version or stored.obj["count"] == count
        assert store.version >= max(versions)
        version = store.version
        store.close()
        return version


class TestWatchCache:
    async def test_too_old_version_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "WATCH_CACHE_SIZE", 3)
        store = ObjectStore(None)
        start = store.version
        for value in range(3):
            await put(store, "a", value=value)
        assert len(store.changes_since("things", start)) == 3
        await put(store, "a", value=9)
        with pytest.raises(ResourceVersionTooOld):
            store.changes_since("things", start)
        with pytest.raises(ResourceVersionTooOld):
            store.list_at("things", start)
        assert store.changes_since("others", start) == []

    async def test_removed_object_keeps_its_last_state(self) -> None:
        store = ObjectStore(None)
        await put(store, "a", value=1)
        change = await remove(store, "a")
        assert change is not None
        assert change.removed
        assert change.new.obj["value"] == 1
        assert change.new.obj["metadata"]["resourceVersion"] == str(change.version)


class TestUnusableFiles:
    def test_newer_format_is_rejected(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        ObjectStore(path).close()
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
        connection.close()
        with pytest.raises(StoreError, match=r"store\.db: written by a newer trainwright .*; upgrade trainwright, or"):
            ObjectStore(path)

    def test_other_files_are_rejected_and_not_modified(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        path.write_bytes(b"certainly not a database" * 100)
        with pytest.raises(StoreError, match=r"store\.db: not a usable store: .*; move the file away to start empty"):
            ObjectStore(path)
        assert path.read_bytes().startswith(b"certainly not")

    def test_empty_file_does_not_pass_for_a_new_store(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        path.touch()
        with pytest.raises(StoreError, match=r"not a usable store: the file is empty; move the file away"):
            ObjectStore(path)

    def test_crash_during_creation_leaves_no_half_a_store(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        (tmp_path / "store.db.new").write_bytes(b"half a file")
        ObjectStore(path).close()
        assert [file.name for file in tmp_path.iterdir()] == ["store.db"]

    def test_missing_directory_is_rejected(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match=r"nowhere/store\.db: cannot create: .*; check that its directory exists"):
            ObjectStore(tmp_path / "nowhere" / "store.db")


async def test_failing_watcher_does_not_block_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ObjectStore(tmp_path / "store.db")
    seen: list[Change] = []

    def broken(_change: Change) -> None:
        raise RuntimeError("wires crossed")

    for watcher in (broken, seen.append):
        store.subscribe("things", watcher)
    async with asyncio.timeout(60):
        await put(store, "a")
        await put(store, "b")
    store.close()
    assert [change.new.key for change in seen] == [("ns", "a"), ("ns", "b")]
    assert "a watcher of things failed" in caplog.text
