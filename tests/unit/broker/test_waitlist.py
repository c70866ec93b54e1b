"""Records for later with copies: journaled before they are indexed, delivered once whoever has the seat."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.unit.broker.test_scheduling import stored
from tests.unit.broker.worlds import running

from tidemill.broker.broker import Broker
from tidemill.broker.journals import Journal, KeyValue
from tidemill.broker.scheduling import Scheduler, Waitlist
from tidemill.broker.scheduling.plan import Waiting, plan_batch
from tidemill.broker.scheduling.seat import PREFIX
from tidemill.model.errors import KafkaStorageError, NotLeaderOrFollower
from tidemill.model.topics import WAITING_RECORDS
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.message import Selection
from tidemill.timelines.core.timeline import State
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.memory import MemoryStore

FAR_MS = 3_600_000


def waiting(number: int, due_ms: int, name: str = "") -> Waiting:
    """A record as a producer asks to have it delivered at its time."""
    headers = (
        ("tidemill-deliver-at", b"%d" % due_ms),
        ("tidemill-schedule-id", name.encode() or b"id-%d" % number),
    )
    batch = build_batch([NewRecord(None, b"%d" % number, headers, 1)])
    plan = plan_batch(batch, read_header(batch), 0, 0)
    assert plan is not None
    return plan.waiting[0]


class World:
    """A broker that leads everything, and seats on it that come and go."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher, scheduler: Scheduler) -> None:
        self.broker = broker
        self.dispatcher = dispatcher
        self.scheduler = scheduler
        self.epoch = 0
        self.journal = broker._internal.journal(WAITING_RECORDS)
        self._opened: list[Waitlist] = []

    @property
    def now_ms(self) -> int:
        return self.dispatcher.clock.now_ms()

    async def seat(self, journal: Journal | None = None) -> Waitlist:
        """Another leadership of the journal."""
        self.epoch += 1
        waitlist = Waitlist(
            self.broker,
            journal or self.journal,
            self.dispatcher,
            node_id=0,
            new_id=uuid4,
            hand_over=self.scheduler.hand_over,
        )
        self._opened.append(waitlist)
        if len(self._opened) == 1:
            await waitlist.open()
        else:
            waitlist._running = asyncio.create_task(waitlist._run())
        waitlist.follow(dict.fromkeys(range(self.journal.partitions), self.epoch))
        await until(lambda: len(waitlist._seats) == self.journal.partitions)
        return waitlist

    async def unseat(self, waitlist: Waitlist) -> None:
        """It leads no more."""
        waitlist.follow({})
        await until(lambda: not waitlist._seats)

    async def keep(self, waitlist: Waitlist, *records: Waiting, cancels: tuple[str, ...] = ()) -> None:
        topic = self.broker.topic("later")
        assert topic is not None
        await waitlist.keep(topic, records, cancels)

    async def values(self) -> list[int]:
        return sorted(int(value or b"") for value in await stored(self.broker.partition("later", 0)))

    async def until_values(self, wanted: list[int]) -> None:
        """Wait until as many records are in the topic, and look whether they are these."""
        async with asyncio.timeout(20):
            while len(await self.values()) < len(wanted):  # noqa: ASYNC110 -- there is nothing to wait on
                await asyncio.sleep(0.01)
        assert await self.values() == wanted

    async def indexed(self) -> int:
        """How many records wait, as all seats see it."""
        lines = [one for one in self.dispatcher.timelines() if one.name.startswith(PREFIX)]
        return sum(
            [await self.dispatcher.count(one.name, Selection()) for one in lines if one.state is State.READY],
        )

    async def until_indexed(self, wanted: int) -> None:
        """Wait until no more records wait than these."""
        async with asyncio.timeout(20):
            while await self.indexed() > wanted:  # noqa: ASYNC110 -- there is nothing to wait on
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for waitlist in self._opened:
            await waitlist.close()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110 -- there is nothing to wait on
            await asyncio.sleep(0.005)


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    async with running(folder, {"tidemill.schedule.topic.num.partitions": "2"}, memory=True) as broker:
        await broker.create_topic("later", partitions=1)
        dispatcher = Dispatcher(MemoryStore(), Clock(), random.Random(1))
        await dispatcher.open()
        scheduler = Scheduler(broker, dispatcher, broker.clock_ms)
        found = World(broker, dispatcher, scheduler)
        try:
            yield found
        finally:
            await found.close()
            await scheduler.close()
            await dispatcher.close()


def play(folder: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(folder) as found:
            await scenario(found)

    asyncio.run(main())


def test_what_is_kept_by_one_seat_is_delivered_by_the_next_and_then_gone(tmp_path: Path) -> None:
    async def scenario(here: World) -> None:
        first = await here.seat()
        await here.keep(first, *(waiting(number, here.now_ms + 300) for number in range(20)))
        await here.keep(first, waiting(99, here.now_ms + 300, "not this"), cancels=("not this", "id-3"))
        await here.keep(first, waiting(5, here.now_ms), waiting(6, here.now_ms + FAR_MS))  # they wait already
        await here.unseat(first)
        second = await here.seat()
        wanted = [number for number in range(20) if number != 3]
        await here.until_values(wanted)
        await here.until_indexed(0)
        await here.unseat(second)
        await here.seat()
        assert await here.indexed() == 0, "what was delivered is out of the journal"

    play(tmp_path, scenario)


def test_a_seat_that_is_lost_before_it_has_journaled_the_end_delivers_nothing_twice(tmp_path: Path) -> None:
    class Forgetful(Journal):
        """Loses the leadership before anything is taken out."""

        async def append(self, partition: int, records: object) -> None:
            if any(value is None for _, value in records):  # type: ignore[attr-defined]
                raise NotLeaderOrFollower("another broker leads")
            await super().append(partition, records)  # type: ignore[arg-type]

    async def scenario(here: World) -> None:
        forgetful = Forgetful.__new__(Forgetful)
        forgetful.__dict__.update(here.journal.__dict__)
        first = await here.seat(forgetful)
        await here.keep(first, *(waiting(number, here.now_ms) for number in range(10)))
        await here.until_values(list(range(10)))
        second = await here.seat()  # the first one is still at it: it was paused, and does not know
        await here.until_indexed(10)  # those of the first, whose leases have not ended
        assert await here.values() == list(range(10))
        await here.unseat(first)
        await here.unseat(second)
        await here.seat()
        assert await here.indexed() == 0

    play(tmp_path, scenario)


def test_what_is_in_the_journal_and_perhaps_not_in_the_index_is_read_anew(tmp_path: Path) -> None:
    async def scenario(here: World) -> None:
        seat = await here.seat()
        await here.keep(seat, waiting(1, here.now_ms + FAR_MS))
        schedule, failures = here.dispatcher.schedule, [KafkaStorageError("the index is away")]

        async def failing(*arguments: object, **named: object) -> object:
            if failures:
                raise failures.pop()
            return await schedule(*arguments, **named)  # type: ignore[arg-type]

        here.dispatcher.schedule = failing  # type: ignore[method-assign, assignment]
        with pytest.raises(KafkaStorageError, match="the index is away"):
            await here.keep(seat, waiting(2, here.now_ms + 200))
        await here.until_values([2])
        await here.until_indexed(1)
        assert await here.indexed() == 1

    play(tmp_path, scenario)


def test_what_waited_for_a_topic_that_is_gone_does_not_come_into_another_of_its_name(tmp_path: Path) -> None:
    async def scenario(here: World) -> None:
        seat = await here.seat()
        await here.keep(seat, waiting(1, here.now_ms + 200))
        await here.broker.delete_topic("later")
        await here.broker.create_topic("later", partitions=1)
        await here.keep(seat, waiting(1, here.now_ms + 100), waiting(2, here.now_ms + 400))
        await here.until_indexed(0)
        assert await here.values() == [1, 2]

    play(tmp_path, scenario)


def test_who_has_no_seat_says_so(tmp_path: Path) -> None:
    async def scenario(here: World) -> None:
        seat = await here.seat()
        await here.unseat(seat)
        entries: list[KeyValue] = [(b"k", None)]
        with pytest.raises(NotLeaderOrFollower, match="is not kept here"):
            await seat._take(0, entries)
        with pytest.raises(NotLeaderOrFollower):
            await here.keep(seat, waiting(1, here.now_ms))

    play(tmp_path, scenario)
