"""Two brokers over one store, on a virtual clock: each delivers the buckets of its consumers, none is lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress

import pytest
from tests.support.virtual_timelines import START_MS, Fleet, Received, VirtualLoop, World

from tidemill.model.timeline_errors import ConsumerReplaced
from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.deal_record import decode_deal
from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.shared_windows import HELP_AFTER_MS, ConsumerPlace
from tidemill.timelines.core.timeline import Catalogue, TimelineSettings
from tidemill.timelines.delivery import EARLY_MS
from tidemill.timelines.dispatcher import REFRESH_S, Dispatcher
from tidemill.timelines.memory import MemoryTimelineStore

pytestmark = pytest.mark.event_loop("virtual_selector")

NEWS_S = 0.03
WINDOW_MS = 2_000


class SharedStore(MemoryTimelineStore):
    """A store that others use too: it says what time it is there."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def catalogue(self) -> Catalogue:
        return (await super().catalogue())._replace(now_ms=self._world.clock.now_ms())

    async def close(self) -> None:
        """The others go on with it."""


class Hub:
    """Coordination: who is registered where; each broker hears of it a little later."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: dict[tuple[str, str], tuple[DealtConsumer, int, int]] = {}
        self.brokers: list[BrokerRegistry] = []
        self.deals: dict[str, bytes] = {}
        self.deal_writes = 0
        self.revision = 0

    def write(self, timeline: str, consumer: str, entry: tuple[DealtConsumer, int, int] | None) -> None:
        if entry is None:
            self.written.pop((timeline, consumer), None)
        else:
            self.written[timeline, consumer] = entry
        self._spread(timeline)

    def write_deal(self, timeline: str, record: bytes | None, seen: bytes | None) -> None:
        """Record a deal, if the writer has seen the newest one."""
        if self.deals.get(timeline) != seen:
            return
        self.deal_writes += 1
        if record is None:
            self.deals.pop(timeline, None)
        else:
            self.deals[timeline] = record
        self._spread(timeline)

    def _spread(self, timeline: str) -> None:
        self.revision += 1
        state = dict(self.written), dict(self.deals)
        for broker in self.brokers:
            self.world.loop.call_later(NEWS_S, broker.hear, timeline, self.revision, *state)

    def lose(self, node: int) -> None:
        for (timeline, consumer), (_, _, at) in list(self.written.items()):
            if at == node:
                self.write(timeline, consumer, None)


class BrokerRegistry:
    """One broker's consumer registry."""

    def __init__(self, hub: Hub, node: int) -> None:
        self.hub, self.node = hub, node
        self.known: dict[tuple[str, str], tuple[DealtConsumer, int, int]] = {}
        self.deals: dict[str, bytes] = {}
        self.here: set[tuple[str, str]] = set()
        self.revision = 0
        self.heard: Callable[[Iterable[str]], None] = lambda _timelines: None
        hub.brokers.append(self)

    def enter(self, timeline: str, member: DealtConsumer) -> None:
        self.here.add((timeline, member.id))
        self.hub.write(timeline, member.id, (member, self.hub.world.clock.now_ms(), self.node))

    def leave(self, timeline: str, consumer: str) -> None:
        self.here.discard((timeline, consumer))
        if self.hub.written.get((timeline, consumer), (None, 0, -1))[2] == self.node:
            self.hub.write(timeline, consumer, None)

    def places(self, timeline: str) -> list[ConsumerPlace]:
        return [
            ConsumerPlace(*entry[:2], entry[2] == self.node)
            for (name, _), entry in self.known.items()
            if name == timeline
        ]

    def deal(self, timeline: str) -> bytes | None:
        return self.deals.get(timeline)

    def publish_deal(self, timeline: str, record: bytes | None) -> None:
        if record != self.deal(timeline):
            self.hub.write_deal(timeline, record, self.deals.get(timeline))

    def displaced(self, timeline: str) -> list[str]:
        there = [seat.member.id for seat in self.places(timeline) if not seat.here]
        return [one for one in there if (timeline, one) in self.here]

    def listen(self, heard: Callable[[Iterable[str]], None]) -> None:
        self.heard = heard

    def hear(
        self,
        timeline: str,
        revision: int,
        state: dict[tuple[str, str], tuple[DealtConsumer, int, int]],
        deals: dict[str, bytes],
    ) -> None:
        if revision > self.revision:  # timers of one instant have no order, revisions do
            self.revision, self.known, self.deals = revision, state, deals
            self.heard([timeline])


class Pair:
    """Two brokers."""

    def __init__(self, hub: Hub, one: Fleet, two: Fleet) -> None:
        self.hub, self.one, self.two = hub, one, two

    @property
    def received(self) -> list[Received]:
        return [*self.one.received, *self.two.received]

    def buckets(self, fleet: Fleet) -> set[int]:
        return {one.granted.message.bucket for one in fleet.received}

    async def deal(self) -> None:
        """Until every connected consumer has buckets."""
        await asyncio.sleep(2 * WINDOW_MS / 1_000)


def completing(fleet: Fleet) -> Callable[[Received], None]:
    """A consumer that completes what it gets."""
    under_way: set[asyncio.Task[object]] = set()

    def treat(received: Received) -> None:
        task: asyncio.Task[object] = asyncio.create_task(fleet.complete([received]))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    return treat


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    world = World(loop)
    store, hub = SharedStore(world), Hub(world)
    fleets = []
    for node in (1, 2):
        dispatcher = Dispatcher(store, world.clock, random.Random(node), registry=BrokerRegistry(hub, node))
        await dispatcher.open()
        fleets.append(Fleet(world, dispatcher))
        await dispatcher.create("line", TimelineSettings(window_ms=WINDOW_MS, lease_ms=60_000))
    pings = [asyncio.create_task(fleet.answer_pings()) for fleet in fleets]
    try:
        yield Pair(hub, fleets[0], fleets[1])
    finally:
        for ping in pings:
            ping.cancel()
        for fleet in fleets:
            with suppress(Exception):
                await fleet.dispatcher.close()


async def test_each_message_goes_to_the_one_broker_whose_consumer_has_its_bucket(pair: Pair) -> None:
    for fleet, names in ((pair.one, ("a", "b")), (pair.two, ("c", "d"))):
        for name in names:
            fleet.consumer(id=name, rack=name, max_in_flight=10_000)
    await pair.deal()
    due_ms = pair.one.now_ms() + 1_000
    await pair.one.schedule(*(due_ms + number for number in range(1_000)))
    await pair.two.schedule(*(due_ms + number for number in range(1_000)))
    await pair.one.until(lambda: len(pair.received) == 2_000)
    assert len({one.id for one in pair.received}) == 2_000
    assert not pair.buckets(pair.one) & pair.buckets(pair.two)
    assert all(len(fleet.received) > 800 for fleet in (pair.one, pair.two))
    assert {one.consumer for one in pair.received} == set("abcd")
    assert all(one.granted.lease.attempts == 1 and 0 <= one.late_ms <= 2 for one in pair.received)


async def test_buckets_of_a_lost_broker_go_to_the_others(pair: Pair) -> None:
    for fleet, name in ((pair.one, "a"), (pair.two, "b")):
        fleet.treat = completing(fleet)
        fleet.consumer(id=name, max_in_flight=10_000)
    await pair.deal()
    due_ms = pair.one.now_ms() + 1_000
    await pair.two.schedule(*(due_ms + 5 * number for number in range(1_000)))
    await asyncio.sleep(2)
    await pair.two.dispatcher.close()
    pair.hub.lose(2)
    lost_ms = pair.one.now_ms()
    await pair.one.until(lambda: len({one.id for one in pair.received}) == 1_000)
    assert {one.id for one in pair.one.received}.isdisjoint(one.id for one in pair.two.received)
    assert all(one.late_ms >= 0 for one in pair.received)
    # What the lost broker had leased and not yet sent returns with the end of its lease; all else is on time.
    later = [one for one in pair.one.received if one.granted.message.scheduled_ms > lost_ms + EARLY_MS]
    assert len(later) > 500
    assert max(one.late_ms for one in later) < 500


async def test_backups_of_another_rack_take_late_messages_before_a_loss_is_known(pair: Pair) -> None:
    pair.one.consumer(id="a", rack="x", max_in_flight=10_000)
    pair.two.consumer(id="b", rack="y", max_in_flight=10_000)
    await pair.deal()
    await pair.two.dispatcher.close()  # its session lives on in coordination
    pair.hub.write("line", "b", (DealtConsumer("b", "y"), START_MS, 2))
    due_ms = pair.one.now_ms() + 500
    await pair.one.schedule(*(due_ms + number for number in range(200)))
    await pair.one.until(lambda: len(pair.one.received) == 200, 60)
    helped = [one for one in pair.one.received if one.late_ms > 2]
    assert 50 < len(helped) < 150
    assert all(HELP_AFTER_MS <= one.late_ms < HELP_AFTER_MS + 1_500 for one in helped)


async def test_a_stuck_consumer_leaves_its_buckets_to_another_broker(pair: Pair) -> None:
    pair.one.consumer(id="a", max_in_flight=10_000)
    stuck = pair.two.consumer(id="b", max_in_flight=10_000)
    await pair.deal()
    pair.two.dispatcher.ready("line", stuck, busy=True)
    await pair.one.schedule(*(pair.one.now_ms() + number for number in range(200)))
    await pair.one.until(lambda: len(pair.one.received) == 200, 30)
    pair.two.dispatcher.ready("line", stuck, busy=False)
    await pair.deal()
    await pair.deal()
    await pair.one.schedule(*(pair.one.now_ms() + number for number in range(200)))
    await pair.one.until(lambda: len(pair.received) == 400, 30)
    assert len(pair.two.received) > 50


async def test_few_buckets_change_hands_when_consumers_of_two_brokers_come_and_go(pair: Pair) -> None:
    def recorded() -> list[str]:
        deal = decode_deal(pair.hub.deals["line"], BUCKETS)
        assert deal is not None
        shares = {name: size / BUCKETS for name, size in deal.primary.shares().items()}
        assert pair.one.dispatcher.shares("line") == pair.two.dispatcher.shares("line") == shares
        return [deal.primary.owner(bucket) for bucket in range(BUCKETS)]

    def moved(before: list[str], after: list[str]) -> int:
        return sum(one != other for one, other in zip(before, after, strict=True))

    for number in range(6):
        (pair.one, pair.two)[number % 2].consumer(id=f"c{number}", rack="xyz"[number % 3])
        await pair.deal()
    six = recorded()
    seventh = pair.two.consumer(id="c6", rack="x")
    await pair.deal()
    seven = recorded()
    assert moved(six, seven) == seven.count("c6") <= BUCKETS // 7 + 1
    pair.two.dispatcher.detach("line", seventh)
    await pair.deal()
    assert moved(seven, recorded()) == seven.count("c6")
    (first,) = [each for each in pair.one.dispatcher.consumers("line") if each.id == "c0"]
    before = recorded()
    pair.one.dispatcher.detach("line", first)
    await pair.deal()
    assert moved(before, recorded()) == before.count("c0")
    assert pair.hub.deal_writes == 9, "one for each change"
    await pair.one.dispatcher.delete("line")
    await asyncio.sleep(2 * REFRESH_S)  # the other broker reads the catalogue again
    assert "line" not in pair.hub.deals


async def test_the_newest_connection_has_the_id(pair: Pair) -> None:
    pair.one.consumer(id="a", max_in_flight=10_000)
    await pair.deal()
    pair.two.consumer(id="a", max_in_flight=10_000)
    await asyncio.sleep(1)
    assert [type(error) for error in pair.one.ended] == [ConsumerReplaced]
    assert not pair.two.ended
    await pair.one.schedule(pair.one.now_ms() + 500)
    await pair.one.until(lambda: len(pair.two.received) == 1, 10)
