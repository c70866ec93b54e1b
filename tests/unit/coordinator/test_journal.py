"""Journals: what was appended comes back, in order, after a restart; the topic appears with the first record."""

import asyncio
from pathlib import Path

from tests.support.broker_worlds import running

from tidemill.broker.broker import BrokerNode
from tidemill.coordinator.journal import TopicJournal, java_hash
from tidemill.model.topics import GROUP_OFFSETS

NARROW = {"offsets.topic.num.partitions": "4"}


def journal_of(broker: BrokerNode) -> TopicJournal:
    return broker.internal.journal(GROUP_OFFSETS)


async def replayed(journal: TopicJournal, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) async for records in journal.replay(partition) for record in records]


def test_java_hash_is_javas() -> None:
    assert java_hash("") == 0
    assert java_hash("abc") == 96354
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == 0x80000000
    assert java_hash("\U0001f600") == (31 * 0xD83D + 0xDE00)


async def test_a_journal_has_no_topic_before_its_first_record(tmp_path: Path) -> None:
    async with running(tmp_path, NARROW) as broker:
        assert await replayed(journal_of(broker), 0) == []
        assert broker.view.topics() == []
        assert not list((tmp_path / "streams").iterdir())


async def test_records_come_back_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async with running(tmp_path, NARROW) as broker:
        journal = journal_of(broker)
        done: list[int] = []

        async def append(number: int) -> None:
            await journal.append(1, [(b"key", b"%d" % number), (b"gone", None)])
            done.append(number)

        await asyncio.gather(*(append(number) for number in range(50)))
        assert done == list(range(50))
        topic = broker.view.topic(GROUP_OFFSETS)
        assert topic is not None
        assert topic.internal
        assert topic.settings.compacted
    async with running(tmp_path, NARROW) as broker:
        journal = journal_of(broker)
        expected = [pair for number in range(50) for pair in ((b"key", b"%d" % number), (b"gone", None))]
        assert await replayed(journal, 1) == expected
        assert await replayed(journal, 0) == []


async def test_a_caller_that_goes_away_does_not_undo_its_append(tmp_path: Path) -> None:
    async with running(tmp_path, NARROW) as broker:
        journal = journal_of(broker)
        await journal.append(0, [(b"first", b"1")])
        task = asyncio.create_task(journal.append(0, [(b"second", b"2")]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await journal.append(0, [(b"third", b"3")])
        assert [key for key, _ in await replayed(journal, 0)] == [b"first", b"second", b"third"]


async def test_the_width_of_a_journal_is_that_of_its_topic(tmp_path: Path) -> None:
    async with running(tmp_path, NARROW) as broker:
        await journal_of(broker).append(0, [(b"k", b"v")])
    async with running(tmp_path, {"offsets.topic.num.partitions": "16"}) as broker:
        wider = journal_of(broker)
        assert wider.partitions == 4
        assert {wider.partition_of(f"group-{number}") for number in range(100)} == {0, 1, 2, 3}
