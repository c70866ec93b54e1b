"""Where the partitions of a topic are looked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.broker.storage_router import StorageRouter, TableLogs
from tidemill.broker.topic_directories import STREAMS, TopicDirectories
from tidemill.model.topic_settings import IN_SEGMENTS, parse
from tidemill.streams.segments import SegmentStore
from tidemill.testing.clock import VirtualClock

PARTITIONS = 40


async def no_tables() -> TableLogs:
    raise AssertionError("there are none")


async def test_the_folder_of_a_topic_is_not_read_for_each_of_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic has up to 10,000, and so many names are in its folder."""
    read, iterdir = [], Path.iterdir

    def counted(folder: Path) -> Iterator[Path]:
        read.append(folder)
        return iterdir(folder)

    async def opened(settings: dict[str, str]) -> None:
        clock = VirtualClock()
        files = TopicDirectories(tmp_path, SegmentStore.at(tmp_path / STREAMS), clock)
        places = StorageRouter(tmp_path, files, no_tables, lambda: False, clock, default=IN_SEGMENTS)
        await places.claim("wide", "id", new=not (tmp_path / STREAMS / "wide").exists())
        read.clear()
        logs = [await places.open("wide", index, parse(settings), 0, "id") for index in range(PARTITIONS)]
        assert 0 < len(read) < 4
        for log in logs:
            await log.close()
        await places.close(clean=True)

    monkeypatch.setattr(Path, "iterdir", counted)
    await opened({})
    await opened({})
