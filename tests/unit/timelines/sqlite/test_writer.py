"""A store keeps few connections, however long it runs."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tidemill.timelines.sqlite import writer
from tidemill.timelines.sqlite.schema import CONNECTIONS_MAX, connect
from tidemill.timelines.sqlite.writer import SqliteWriter

ROUNDS = 40


def _open_files(path: Path) -> int:
    """Descriptors of this process that lead to the file, its log and what connections share."""
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(str(link).startswith(str(path)) for link in links)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
async def test_checkpoints_share_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def counted(path: Path, *more: Any) -> sqlite3.Connection:
        opened.append(path)
        return connect(path, *more)

    monkeypatch.setattr(writer, "connect", counted)
    monkeypatch.setattr(writer, "CHECKPOINT_CHANGES", 1)
    path = tmp_path / "timelines.db"

    async def run() -> list[int]:
        store = SqliteWriter(path)
        await store.start()
        await store.do(lambda connection: connection.execute("CREATE TABLE numbers (number)"))
        counts = []
        for _ in range(ROUNDS):
            await store.do(lambda connection: connection.execute("INSERT INTO numbers VALUES (1)"))
            await asyncio.sleep(0.01)  # for the checkpoint, which runs in the background
            counts.append(_open_files(path))
        await store.close()
        return counts

    counts = await run()
    assert len(opened) <= CONNECTIONS_MAX, f"{len(opened)} connections in {ROUNDS} rounds"
    assert len(set(counts[ROUNDS // 2 :])) == 1, counts
    assert _open_files(path) == 0
