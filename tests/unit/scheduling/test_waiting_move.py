"""Waiting records move from their journal into shared timelines: each once, with its mark, and none that has left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.broker_worlds import running
from tests.support.replicated_timelines import JournalWorld
from tests.support.waiting import eventually_async

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import KafkaStorageError
from tidemill.model.topics import WAITING
from tidemill.scheduling.core.waiting_records import WaitingEntry, encode, mark_of, new_ticket
from tidemill.scheduling.scheduler import DOUBTFUL, SETTINGS
from tidemill.scheduling.waiting_move import WaitingMove, keep_mark
from tidemill.timelines.core.lease import Cancel
from tidemill.timelines.core.message import EVERYTHING, NewMessage, TimedMessage
from tidemill.timelines.core.timeline import Create, MakeReady

TOPIC = "later"
LINE = "__schedule.later"
ONE = {"tidemill.waiting.topic.num.partitions": "1"}
FAR_MS = 4_000_000_000_000


class Scene:
    """One broker that leads the journal, and a store that several brokers share."""

    def __init__(self, broker: BrokerNode, world: JournalWorld) -> None:
        self.broker = broker
        self.journal = broker.internal.journal(WAITING)
        self.store = world.stores[1]
        self._led: dict[int, int] = {}

    async def write(self, *entries: WaitingEntry) -> None:
        await self.journal.append(0, list(map(encode, entries)))

    async def move(self, until: Callable[[], bool] | None = None) -> None:
        """Lead the journal until everything has moved, or be killed earlier."""
        self._led = {0: 0}
        move = WaitingMove(
            self.journal, self.store, led=lambda: self._led, journal_id=lambda: "id", topic=self.broker.view.topic
        )
        running = asyncio.create_task(move.run())
        try:
            await eventually_async(until or (lambda: move._moved == self._led), "it does not end")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def left(self) -> set[str]:
        """The ids that wait according to the journal."""
        alive: set[str] = set()
        async for records in self.journal.replay(0):
            for record in records:
                name = (record.key or b"").rpartition(b"\0")[2].decode()
                (alive.discard if record.value is None else alive.add)(name)
        return alive

    async def there(self) -> dict[str, TimedMessage]:
        found = await self.store.find(LINE, EVERYTHING, now_ms=0, limit=5_000, bodies=True)
        return {one.id: one for one in found}

    def entry(self, name: str, body: bytes = b"body", topic_id: UUID | None = None) -> WaitingEntry:
        topic = self.broker.view.topic(TOPIC)
        assert topic is not None
        return WaitingEntry(TOPIC, name, FAR_MS, new_ticket(uuid4(), topic_id or topic.topic_id), body)


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    world = JournalWorld(folder / "cluster", 3)
    async with running(folder, ONE, memory=True) as broker:
        await broker.topics.create(TOPIC, partitions=1)
        await world.start(1)
        yield Scene(broker, world)
        await world.stop(1)


async def test_waiting_records_move_with_their_marks_and_the_rest_does_not(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        kept = [one.entry(f"k{number}", b"%d" % number) for number in range(20)]
        await one.write(*kept, one.entry("cancelled"), one.entry("again", b"first"))
        await one.write(WaitingEntry(TOPIC, "cancelled"), again := one.entry("again", b"second"))
        await one.write(one.entry("of an earlier topic", topic_id=uuid4()))
        await one.journal.append(0, [(b"not an entry", b"x")])
        await one.move()
        found = await one.there()
        wanted = {each.id: each for each in (*kept, again)}
        assert set(found) == set(wanted)
        for name, message in found.items():
            assert (message.body, message.due_ms) == (wanted[name].body, FAR_MS)
            assert message.key == mark_of(wanted[name].ticket)
            assert message.attempts + 1 == DOUBTFUL, "its first delivery looks for the mark in the log"
        assert await one.left() <= {"not an entry"}


async def test_a_move_that_was_killed_before_it_wrote_to_the_journal_adds_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as one:
        await one.write(*(one.entry(f"k{number}") for number in range(30)))
        failures: list[int] = []

        async def failing(partition: int, _: Sequence[tuple[bytes | None, bytes | None]]) -> None:
            failures.append(partition)
            raise KafkaStorageError("as requested")

        with monkeypatch.context() as patch:
            patch.setattr(one.journal, "append", failing)
            await one.move(until=lambda: bool(failures))
        found = await one.there()
        assert len(found) == 30
        gone = sorted(found)[:10]
        await one.store.settle(LINE, [Cancel(name) for name in gone], now_ms=0)
        await one.move()
        assert set(await one.there()) == set(found) - set(gone), "what was done meanwhile does not return"
        assert await one.left() == set()


async def test_a_record_whose_id_was_used_again_gets_another(tmp_path: Path) -> None:
    async with scene(tmp_path) as one:
        for step in (Create(LINE, SETTINGS), MakeReady(LINE)):
            await one.store.govern(step)
        await one.store.schedule(LINE, [NewMessage("k3", FAR_MS, b"new", 1)])
        await one.write(*(one.entry(f"k{number}", b"%d" % number) for number in range(10)))
        await one.move()
        bodies = sorted(message.body or b"" for message in (await one.there()).values())
        assert bodies == sorted([b"new", *(b"%d" % number for number in range(10))])
        assert await one.left() == set()


def test_a_scheduled_record_of_a_file_keeps_its_mark() -> None:
    message = TimedMessage(7, "id", 1, 1, 0, "", None, 0, 1, 0, 4, None, b"body")
    assert keep_mark("orders", message) == message
    assert keep_mark(LINE, message).key == b"id@7"
    assert keep_mark(LINE, message._replace(key=b"mark")).key == b"mark"
