"""The store's file: a SQLite database and a thread that commits all queued writes together (group commit).

WAL with `synchronous=FULL`: a committed write survives `kill -9` and a loss of power.
"""

import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FORMAT = 1
"""Increased when older releases can no longer read the file."""

_BATCH = 500

_RESERVED_BYTES = 4 * 1024 * 1024
"""As much as SQLite writes to the WAL before it starts at its beginning again (1000 pages)."""

_RESERVE_AFTER_SECONDS = 1.0
"""Without a write: it takes some 30 ms, which should not delay the start of the cluster."""


class StoreError(Exception):
    """The database file cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Write:
    """One object's new bytes, or its removal (`body` is None), as of `version`."""

    resource: str
    namespace: str
    name: str
    version: int
    body: bytes | None


class Journal:
    """Appends writes durably. `done` is called on the journal's own thread, with the error if the commit failed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _open(path)
        self._queue: queue.SimpleQueue[tuple[Write, Callable[[Exception | None], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-journal", daemon=True)
        self._thread.start()

    def load(self) -> tuple[int, list[Write]]:
        """The newest allocated version and all objects; must be called before the first append."""
        try:
            version = self._connection.execute("SELECT version FROM clock").fetchone()[0]
            rows = self._connection.execute("SELECT resource, namespace, name, version, body FROM objects").fetchall()
        except (sqlite3.DatabaseError, TypeError) as error:
            raise StoreError(_corrupt(self._path, error)) from error
        return version, [Write(*row) for row in rows]

    def append(self, write: Write, done: Callable[[Exception | None], None]) -> None:
        self._queue.put((write, done))

    def close(self) -> None:
        """Commits what is queued and closes the file."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        open_, reserved = True, False
        while open_:
            try:
                batch = [self._queue.get(timeout=None if reserved else _RESERVE_AFTER_SECONDS)]
            except queue.Empty:
                _reserve_space(self._connection)
                reserved = True
                continue
            while len(batch) < _BATCH and not self._queue.empty():
                batch.append(self._queue.get())
            open_ = None not in batch
            writes = [entry for entry in batch if entry is not None]
            error = self._commit([write for write, _ in writes]) if writes else None
            for _, done in writes:
                done(error)

    def _commit(self, writes: Sequence[Write]) -> Exception | None:
        try:
            with self._connection:
                self._connection.execute("BEGIN")
                for write in writes:
                    self._apply(write)
                self._connection.execute("UPDATE clock SET version = ?", (writes[-1].version,))
        except sqlite3.Error as error:
            return StoreError(f"{self._path}: cannot write: {error}; free some disk space and check its permissions")
        except Exception as error:  # without this thread every later write would wait forever
            return error
        return None

    def _apply(self, write: Write) -> None:
        key = (write.resource, write.namespace, write.name)
        if write.body is None:
            self._connection.execute("DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?", key)
        else:
            self._connection.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (*key, write.version, write.body)
            )


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        _create_file(path)
    elif path.stat().st_size == 0:
        raise StoreError(_corrupt(path, "the file is empty"))
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    except sqlite3.Error as error:
        raise StoreError(_inaccessible(path, "open", error)) from error
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise StoreError(
                f"{path}: written by a newer trainwright (store format {found}, this one reads up to {FORMAT}); "
                "upgrade trainwright, or start with another --data-dir"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise StoreError(_corrupt(path, error)) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _create_file(path: Path) -> None:
    """Under another name first: a crash must not leave half a store, which would pass for a new one."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        # SQLite would create it for all users to read; its other files get the mode of this one.
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(fresh, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            _create_tables(connection)
        finally:
            connection.close()
        fresh.rename(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(_inaccessible(path, "create", error)) from error


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute(
        "CREATE TABLE objects (resource TEXT, namespace TEXT, name TEXT, version INTEGER NOT NULL, body BLOB NOT NULL, "
        "PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID"
    )
    connection.execute("CREATE TABLE clock (version INTEGER NOT NULL)")
    connection.execute("INSERT INTO clock VALUES (1)")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("COMMIT")


def _reserve_space(connection: sqlite3.Connection) -> None:
    """Lets both files grow now, so that writes find room in them when the disk is full: users delete objects then, and
    events tell them why."""
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS reserve (bytes BLOB)")
        connection.execute("INSERT INTO reserve VALUES (zeroblob(?))", (_RESERVED_BYTES,))
        connection.execute("DROP TABLE reserve")
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
    except sqlite3.Error:
        return  # the disk is full already, or the next write fails for the same reason


def _inaccessible(path: Path, verb: str, error: Exception) -> str:
    return f"{path}: cannot {verb}: {error}; check that its directory exists and can be written"


def _corrupt(path: Path, error: Exception | str) -> str:
    return f"{path}: not a usable store: {error}; move the file away to start empty, or start with another --data-dir"
