"""Waiting records: the state is that of the journal on every broker, and a store that failed is filled again."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.broker_worlds import running
from tests.support.waiting import eventually_async

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import InvalidRecord, NotEnoughReplicas
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topics import WAITING
from tidemill.scheduling.core.waiting_records import (
    WaitingEntry,
    decode,
    encode,
    in_chunks,
    mark_of,
    new_ticket,
    topic_id_of,
)
from tidemill.scheduling.replicated_store import ReplicatedStore
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.message import EVERYTHING, NewMessage, Scheduled
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.memory import MemoryTimelineStore

TOPIC = "later"
ROOM = "__waiting.later"
ONE = {"tidemill.waiting.topic.num.partitions": "1"}
FAR_MS = 4_000_000_000_000


class Store(MemoryTimelineStore):
    """A store that fails when the test says so."""

    fails = False

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        if self.fails:
            raise StoreUnavailable("as requested")
        return await super().schedule(timeline, messages)


class Keeper:
    """One broker's rooms over a journal that all share."""

    def __init__(self, broker: BrokerNode) -> None:
        self.broker = broker
        self.led: dict[int, int] = {}
        self.open: set[str] = set()
        self.store = Store()
        self.timelines = Dispatcher(self.store, Clock(), random.Random(1))
        self.rooms = ReplicatedStore(
            broker.internal.journal(WAITING),
            self.timelines,
            self,
            settings=TimelineSettings(),
            led=lambda: self.led,
            topic=broker.view.topic,
        )

    def waiting_opened(self, name: str) -> None:
        self.open.add(name)

    def waiting_closed(self, name: str) -> None:
        self.open.discard(name)

    async def lead(self, epoch: int | None) -> None:
        """Lead the journal in this epoch, or not at all, until the rooms have followed."""
        self.led = {} if epoch is None else {0: epoch}
        self.rooms.look()
        await eventually_async(lambda: self._has_followed(epoch is not None))

    def _has_followed(self, leads: bool) -> bool:
        return self.rooms.owns(TOPIC) if leads else not self.timelines.timelines()

    async def waiting(self) -> dict[str, bytes | None]:
        if ROOM not in {one.name for one in self.timelines.timelines()}:
            return {}
        return {one.id: one.body for one in await self.timelines.messages(ROOM, EVERYTHING, 1000)}


@asynccontextmanager
async def keepers(folder: Path) -> AsyncIterator[tuple[Keeper, Keeper]]:
    async with running(folder, ONE, memory=True) as broker:
        await broker.topics.create(TOPIC, partitions=1)
        both = Keeper(broker), Keeper(broker)
        for each in both:
            await each.timelines.open()
            await each.rooms.open()
        try:
            yield both
        finally:
            for each in both:
                await each.rooms.close()
                await each.timelines.close()


def entry(broker: BrokerNode, message_id: str, body: bytes, topic_id: UUID | None = None) -> WaitingEntry:
    topic = broker.view.topic(TOPIC)
    assert topic is not None
    return WaitingEntry(TOPIC, message_id, FAR_MS, new_ticket(uuid4(), topic_id or topic.topic_id), body)


def test_entries_are_read_as_they_were_written() -> None:
    drawn, topic_id = uuid4(), uuid4()
    waits = WaitingEntry("a.topic", "an id", 12, new_ticket(drawn, topic_id), b"body")
    assert decode(*encode(waits)) == waits
    assert mark_of(waits.ticket) == drawn.hex.encode()
    assert topic_id_of(waits.ticket) == topic_id
    assert decode(*encode(WaitingEntry("a.topic", "an id"))) == WaitingEntry("a.topic", "an id")


@pytest.mark.parametrize("record", [(None, None), (b"no end", None), (b"t\0id", b"short"), (b"\xff\0id", None)])
def test_an_invalid_entry_is_rejected(record: tuple[bytes | None, bytes | None]) -> None:
    with pytest.raises(InvalidRecord):
        decode(*record)


def test_pieces_are_bounded_in_number_and_bytes() -> None:
    small = [WaitingEntry("t", str(number)) for number in range(2_500)]
    assert [len(piece) for piece in in_chunks(small)] == [1_000, 1_000, 500]
    large = [WaitingEntry("t", str(number), body=bytes(300 * 1024)) for number in range(3)]
    assert [len(piece) for piece in in_chunks(large)] == [1, 1, 1]


async def test_the_next_keeper_has_what_waits_and_the_last_one_has_nothing(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, second):
        broker = first.broker
        await first.lead(1)
        await first.rooms.take([entry(broker, one, one.encode()) for one in ("a", "b", "c", "d")])
        await first.rooms.take([entry(broker, "a", b"a second of that name"), WaitingEntry(TOPIC, "b")])
        await first.rooms.leave(TOPIC, ["c"])
        await first.lead(None)
        assert first.open == set()
        await second.lead(2)
        assert second.open == {ROOM}
        assert await second.waiting() == {"a": b"a", "d": b"d"}


async def test_a_record_that_is_taken_back_makes_room_for_another_of_its_name(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, second):
        await first.lead(1)
        await first.rooms.take([entry(first.broker, "a", b"old")])
        await first.rooms.take([WaitingEntry(TOPIC, "a"), entry(first.broker, "a", b"new")])
        assert await first.waiting() == {"a": b"new"}
        await first.lead(None)
        await second.lead(2)
        assert await second.waiting() == {"a": b"new"}


async def test_of_two_entries_with_one_name_the_later_counts(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, _):
        journal = first.broker.internal.journal(WAITING)
        for body in (b"its writer never heard of it", b"kept"):
            await journal.append(0, [encode(entry(first.broker, "a", body))])
        await first.lead(1)
        assert await first.waiting() == {"a": b"kept"}


async def test_a_replica_that_does_not_lead_takes_no_entry(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, second):
        await first.lead(1)
        await second.lead(2)
        first.led = {}  # it has heard of it, and its rooms have not followed yet
        with pytest.raises(NotEnoughReplicas):
            await first.rooms.take([entry(first.broker, "a", b"a")])
        with pytest.raises(NotEnoughReplicas):
            await first.rooms.leave(TOPIC, ["a"])


async def test_a_store_that_failed_is_filled_again_from_the_journal(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, _):
        await first.lead(1)
        await first.rooms.take([entry(first.broker, "a", b"a")])
        first.store.fails = True
        with pytest.raises(StoreUnavailable):
            await first.rooms.take([entry(first.broker, "b", b"b")])
        assert not first.rooms.owns(TOPIC)
        first.store.fails = False
        await first.lead(1)
        assert await first.waiting() == {"a": b"a", "b": b"b"}


async def test_records_that_waited_for_a_deleted_topic_are_left_out(tmp_path: Path) -> None:
    async with keepers(tmp_path) as (first, second):
        await first.lead(1)
        await first.rooms.take([entry(first.broker, "a", b"a"), entry(first.broker, "old", b"old", uuid4())])
        await first.rooms.topic_deleted(TOPIC)  # one of the same name is there already
        assert await first.waiting() == {"a": b"a"}
        await first.rooms.take([entry(first.broker, "old", b"old", uuid4())])
        await first.lead(None)
        await second.lead(2)
        assert await second.waiting() == {"a": b"a"}
        journal = first.broker.internal.journal(WAITING)
        records = [record async for batch in journal.replay(0) for record in batch]
        assert decode(records[-1].key, records[-1].value) == WaitingEntry(TOPIC, "old")
