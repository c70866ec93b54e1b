"""The search for an unread record ends at the end of the log, also when nothing is stored there any more."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_worlds import batch_of, running

from tidemill.records.unread import UnreadPosition


async def test_a_hole_at_the_end_is_nothing_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("expired")
        partition = broker.view.partition("expired", 0)
        await partition.leader.append(batch_of(b"a", b"b", b"c"), acks=1)
        assert await partition.reader.next_unread(1) == UnreadPosition(1, 1_700_000_000_000)

        async def nothing(*_: Any, **__: Any) -> list[bytes]:
            return []  # as after the rows of a table have expired

        monkeypatch.setattr(partition._log, "read", nothing)
        assert await partition.reader.next_unread(1) == UnreadPosition(3)
        assert await partition.reader.next_unread(3) == UnreadPosition(3)
