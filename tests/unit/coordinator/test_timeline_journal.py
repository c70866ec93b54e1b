"""The journal of replicated timelines: appends behind a known position, reads of what is committed, and trimming."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.broker_worlds import running

from tidemill.broker.broker import BrokerNode
from tidemill.coordinator import timeline_journal
from tidemill.coordinator.timeline_journal import TimelineJournal, TimelinePartitionLog
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topics import TIMELINES
from tidemill.timelines.core.errors import PartitionMoved
from tidemill.timelines.core.journal_entries import NOTHING_READ, JournalPosition


@asynccontextmanager
async def journal_in(
    folder: Path, *, is_committed_by_all: bool = True
) -> AsyncIterator[tuple[BrokerNode, TimelinePartitionLog]]:
    """Partition 0 of the journal, which has one value."""
    async with running(folder, {"tidemill.timelines.topic.num.partitions": "2"}) as broker:
        journal = TimelineJournal(broker.internal, broker.partitions, is_committed_by_all=is_committed_by_all)
        if not journal.exists:
            await broker.internal.journal(TIMELINES).append(0, [(None, b"first")])
        yield broker, journal.partition(0)


async def values_from(log: TimelinePartitionLog, offset: int) -> list[bytes]:
    return [value for batch in await log.read(offset) for value in batch.values]


async def test_the_topic_is_trimmed_and_not_compacted(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as (broker, log):
        topic = broker.view.topic(TIMELINES)
        assert topic is not None
        assert not topic.settings.compacted
        assert (topic.settings.retention_ms, topic.settings.retention_bytes) == (-1, -1)
        assert len(topic.partitions) == 2
        assert log.log_id == str(topic.topic_id)


@pytest.mark.parametrize("is_committed_by_all", [True, False])
async def test_values_come_back_in_order_with_their_positions(tmp_path: Path, is_committed_by_all: bool) -> None:
    async with journal_in(tmp_path, is_committed_by_all=is_committed_by_all) as (_, log):
        epoch = log.leader_epoch
        assert epoch is not None
        at = await log.append([b"a", b"b"], JournalPosition(1, epoch), epoch)
        assert at == JournalPosition(3, epoch)
        assert await log.append([b"c"], at, epoch) == JournalPosition(4, epoch)
        await log.settled()
        assert await values_from(log, 0) == [b"first", b"a", b"b", b"c"]
        assert await values_from(log, 3) == [b"c"]
        assert (await log.read(0))[-1].until == JournalPosition(4, epoch)
        assert await log.read(4) == ()


async def test_values_that_need_several_batches_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_journal, "BATCH_BYTES_MAX", 10)
    async with journal_in(tmp_path) as (_, log):
        given = [b"%d" % number * 4 for number in range(9)]
        assert (await log.append(given, JournalPosition(1, 0), log.leader_epoch or 0)).next_offset == 10
        assert await values_from(log, 1) == given


async def test_a_leader_that_does_not_know_the_end_writes_nothing(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as (_, log):
        epoch = log.leader_epoch or 0
        for at, in_epoch in ((JournalPosition(0, epoch), epoch), (JournalPosition(1, epoch), epoch + 1)):
            with pytest.raises(PartitionMoved):
                await log.append([b"late"], at, in_epoch)
        assert await values_from(log, 0) == [b"first"]


async def test_a_trimmed_journal_continues_only_what_it_still_has(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as (_, log):
        epoch = log.leader_epoch or 0
        end = await log.append([b"a"], JournalPosition(1, epoch), epoch)
        assert log.continues(NOTHING_READ)
        assert log.continues(end)
        assert not log.continues(JournalPosition(9, epoch)), "the index knows more than the log: the log was cut back"
        assert not log.continues(JournalPosition(1, epoch + 1)), "the index has read what another leader wrote there"
        await log.trim(1)
        assert log.start_offset == 1
        assert not log.continues(NOTHING_READ)
        assert log.continues(end)
        assert await values_from(log, 1) == [b"a"]


async def test_a_partition_that_is_not_here_is_unavailable(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        journal = TimelineJournal(broker.internal, broker.partitions, is_committed_by_all=True)
        assert not journal.exists
        log = journal.partition(0)
        assert log.log_id is None
        with pytest.raises(StoreUnavailable):
            await log.read(0)
