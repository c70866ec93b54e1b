"""Replicated tables for the fronts of `clickhouse_front.py`: what ClickHouse Keeper does for real servers, in a folder.

This is an emulation, and exact only in what brokers rely on. Every change is an entry of one log, in order. A change
is acknowledged when most replicas have applied it. A replica that is killed loses its session at once. One that was
dropped is read-only, also after it returns. `SYSTEM SYNC REPLICA` applies the rest of the log or fails. Parts,
mutations and fetches do not exist here.
"""

import fcntl
import json
import re
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

_ENGINE = re.compile(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?")
_CLUSTER = re.compile(r" ON CLUSTER `[^`]*`")
_DROP = re.compile(r"SYSTEM DROP REPLICA '([^']*)' FROM DATABASE")


class Change(NamedTuple):
    """A statement that changes tables, with its data and settings."""

    sql: str
    data: bytes
    settings: dict[str, str]
    database: str


Apply = Callable[[Change], None]


def local_statement(sql: str) -> str:
    """The statement for one engine without replication."""
    plain = _ENGINE.sub(r"\1(", _CLUSTER.sub("", sql))
    return plain.replace("= replicated_dedup", "= non_replicated_dedup").replace(
        " replicated_deduplication_window", " non_replicated_deduplication_window"
    )


class KeeperEmulation:
    """The view of one replica. The folder has the log, and a port, a session and a mark of each replica."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._log, self._replicas = folder / "log", folder / "replicas"
        for each in (self._log, self._replicas):
            each.mkdir(parents=True, exist_ok=True)
        self._applied = self._replicas / f"{name}.applied"
        self._session: TextIO | None = None

    def join(self, port: int, apply: Apply) -> None:
        """Begin the session, and apply what was missed."""
        self._session = (self._replicas / f"{self._name}.session").open("w")
        fcntl.flock(self._session, fcntl.LOCK_EX)
        (self._replicas / f"{self._name}.port").write_text(str(port))
        with self.commit():
            self.catch_up(apply, is_behind=False)

    @contextmanager
    def commit(self) -> Iterator[None]:
        """One change at a time, on whichever replica."""
        with (self._folder / "turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield

    def check_writable(self, sql: str) -> None:
        """Raise as ClickHouse does on a dropped replica, with too few others, or for ON CLUSTER without a server."""
        if " ON CLUSTER " in sql and self._active() != self._names():
            raise RuntimeError("Code: 159. DB::Exception: Distributed DDL task was not finished on a host that is down")
        if self._is_dropped(self._name):
            raise RuntimeError("Code: 242. DB::Exception: Table is in readonly mode: the replica was dropped")
        if len(self._active()) < self._quorum():
            raise RuntimeError("Code: 285. DB::Exception: Number of alive replicas is less than requested quorum")

    def append(self, change: Change) -> None:
        """Add a change that this replica has applied."""
        number = len(list(self._log.iterdir()))
        entry = self._log / f"{number:09d}"
        fields = {**change._asdict(), "data": b64encode(change.data).decode()}
        entry.with_suffix(".new").write_text(json.dumps(fields))
        entry.with_suffix(".new").rename(entry)
        self._applied.write_text(str(number + 1))

    def replicate(self) -> None:
        """Return when most replicas have applied every change."""
        end = len(list(self._log.iterdir()))
        done = 1
        for name in self._active() - {self._name}:
            url = f"http://127.0.0.1:{(self._replicas / f'{name}.port').read_text()}/replicate"
            try:
                done += int(urllib.request.urlopen(url, data=b"", timeout=60).read()) >= end
            except OSError:
                continue
        if done < self._quorum():
            raise RuntimeError("Code: 319. DB::Exception: Unknown status, quorum was not reached")

    def catch_up(self, apply: Apply, *, is_behind: bool) -> int:
        """Apply the rest of the log, and return how much of it is applied."""
        done = int(self._applied.read_text()) if self._applied.exists() else 0
        entries = sorted(each for each in self._log.iterdir() if each.suffix == "")
        if is_behind or self._is_dropped(self._name):
            return done
        for entry in entries[done:]:
            fields = json.loads(entry.read_text())
            apply(Change(**{**fields, "data": b64decode(fields["data"])}))
            done += 1
            self._applied.write_text(str(done))
        return done

    def run_system(self, sql: str) -> None:
        """Handle SYSTEM DROP REPLICA and SYSTEM SYNC REPLICA."""
        found = _DROP.match(sql)
        if found is not None:
            if found.group(1) in self._active():
                raise RuntimeError("Code: 305. DB::Exception: Can't drop replica, because it's active")
            (self._replicas / f"{found.group(1)}.dropped").touch()
        elif sql.startswith("SYSTEM SYNC REPLICA") and int(self._applied.read_text()) < len(list(self._log.iterdir())):
            raise RuntimeError("Code: 159. DB::Exception: SYNC REPLICA: command timed out")

    def with_system_tables(self, sql: str) -> str:
        """The query with what this emulation knows, instead of the engine's own tables of replicas."""
        known = {each for each in self._names() if not self._is_dropped(each)}
        active = ", ".join(f"'{each}', {int(each in self._active())}" for each in sorted(known))
        rows = (
            "(SELECT name AS table, database, "
            f"'{self._name}' AS replica_name, {int(self._is_dropped(self._name))} AS is_readonly, "
            f"CAST(map({active}), 'Map(String, UInt8)') AS replica_is_active "
            "FROM system.tables WHERE engine LIKE '%MergeTree')"
        )
        return sql.replace("system.replicas", rows)

    def _names(self) -> set[str]:
        return {each.stem for each in self._replicas.glob("*.port")}

    def _is_dropped(self, name: str) -> bool:
        return (self._replicas / f"{name}.dropped").exists()

    def _active(self) -> set[str]:
        return {each for each in self._names() if not self._is_dropped(each) and self._has_session(each)}

    def _has_session(self, name: str) -> bool:
        with (self._replicas / f"{name}.session").open("a") as session:
            try:
                fcntl.flock(session, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            return False

    def _quorum(self) -> int:
        return len([each for each in self._names() if not self._is_dropped(each)]) // 2 + 1
