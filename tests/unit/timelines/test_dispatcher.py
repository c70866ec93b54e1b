"""The dispatcher on a virtual clock: on time, never early, one lease at a time, and nothing is forgotten."""

import asyncio
from typing import Any

import pytest
from tests.support.virtual_timelines import virtual_fleet

from tidemill.model.timeline_errors import (
    BadLease,
    BodyTooLarge,
    ConsumerReplaced,
    StoreUnavailable,
    TimelineDeleting,
    UnknownTimeline,
)
from tidemill.timelines import delivery, prefetcher
from tidemill.timelines.core import message as message_core
from tidemill.timelines.core.lease import CommandOutcome, Complete, Extend, LeaseGrant, Release
from tidemill.timelines.core.message import EVERYTHING, MessageStatus, Selection, TimelinePosition
from tidemill.timelines.core.timeline import DealerKind, TimelineSettings
from tidemill.timelines.dispatcher import ScheduleRequest
from tidemill.timelines.memory import MemoryTimelineStore

pytestmark = pytest.mark.event_loop("virtual_selector")


async def test_messages_arrive_when_they_are_due_and_never_before() -> None:
    async with virtual_fleet() as fleet:
        start = fleet.now_ms()
        await fleet.schedule(*(start + 7 * number for number in range(1_000)))
        fleet.consumer(max_in_flight=10_000)
        await fleet.until(lambda: len(fleet.received) == 1_000)
        assert all(0 <= one.late_ms <= 2 for one in fleet.received if one.granted.message.scheduled_ms > start)
        assert len({one.id for one in fleet.received}) == 1_000


@pytest.mark.parametrize(
    ("ways_us", "drift_us", "lead_ms"),
    [
        ([30_000, 20_000, 25_000], 0, 20),  # the shortest way counts
        ([20_000], -300_000, 20),  # a clock that is behind holds back longer, and is late by itself
        ([20_000], 15_000, 5),  # a clock that is ahead holds back too little
        ([20_000], 40_000, 0),
        ([3_000_000], 0, 50),
        ([], 0, 0),
    ],
)
async def test_a_consumer_that_holds_messages_is_sent_them_early_by_its_latency(
    ways_us: list[int], drift_us: int, lead_ms: int
) -> None:
    async with virtual_fleet() as fleet:
        for name in ("holds", "does not"):
            consumer = fleet.consumer(id=name, holds_back=name == "holds", rack=name)
            for way_us in ways_us:
                fleet.dispatcher.heard("line", consumer, latency_us=way_us, drift_us=drift_us)
        await asyncio.sleep(20)  # both are dealt in
        await fleet.schedule(*(fleet.now_ms() + 1_000 + 10 * number for number in range(100)))
        await fleet.until(lambda: len(fleet.received) == 100)
        assert {one.consumer for one in fleet.received} == {"holds", "does not"}
        for one in fleet.received:
            assert 0 <= one.late_ms + (lead_ms if one.consumer == "holds" else 0) <= 4


async def test_a_message_scheduled_inside_the_horizon_is_on_time() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        await asyncio.sleep(60)
        for ahead_ms in (1, 10, 100, 1_000, 4_900, 0):
            await fleet.schedule(fleet.now_ms() + ahead_ms)
        await fleet.until(lambda: len(fleet.received) == 6)
        assert all(0 <= one.late_ms <= 2 for one in fleet.received)


async def test_a_past_due_time_is_delivered_now() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        await fleet.schedule(5, fleet.now_ms() - 1_000)
        await fleet.until(lambda: len(fleet.received) == 2, 1)


async def test_a_consumer_never_holds_more_than_it_asked_for() -> None:
    async with virtual_fleet() as fleet:
        consumer = fleet.consumer(max_in_flight=3)
        await fleet.schedule(*([fleet.now_ms()] * 10))
        await asyncio.sleep(5)
        assert len(fleet.received) == len(consumer.held) == 3
        await fleet.complete(fleet.received[:2])
        await asyncio.sleep(0.1)
        assert len(fleet.received) == 5
        assert len(consumer.held) == 3


async def test_a_busy_consumer_gets_nothing_until_it_is_ready() -> None:
    async with virtual_fleet() as fleet:
        consumer = fleet.consumer()
        fleet.dispatcher.ready("line", consumer, busy=True)
        await fleet.schedule(fleet.now_ms())
        await asyncio.sleep(3)
        assert not fleet.received
        fleet.dispatcher.ready("line", consumer, busy=False)
        await fleet.until(lambda: len(fleet.received) == 1, 1)


async def test_the_queue_of_a_busy_consumer_goes_to_a_ready_one_at_once() -> None:
    """Both are in one rack, so neither backs up the other."""
    async with virtual_fleet(settings=TimelineSettings(window_ms=60_000)) as fleet:
        busy, ready = fleet.consumer(id="busy"), fleet.consumer(id="ready")
        await fleet.schedule(*([fleet.now_ms() + 61_000] * 40))
        await fleet.until(lambda: len(fleet.received) == 40)
        assert {one.consumer for one in fleet.received} == {"busy", "ready"}, "both are dealt in"
        held = dict(busy.held)
        fleet.dispatcher.ready("line", busy, busy=True)
        fleet.received.clear()
        await fleet.schedule(*([fleet.now_ms()] * 40))
        await fleet.until(lambda: len(fleet.received) == 40, 1)
        assert {one.consumer for one in fleet.received} == {"ready"}
        assert busy.held == held, "a busy consumer keeps its leases"
        commands = [Extend(seq, token, fleet.now_ms() + 60_000) for seq, token in held.items()]
        assert set(await fleet.dispatcher.settle("line", commands)) == {CommandOutcome.DONE}
        done = [Complete(seq, token) for seq, token in held.items()]
        assert set(await fleet.dispatcher.settle("line", done)) == {CommandOutcome.DONE}
        assert ready.capacity() > 0


async def test_the_buckets_of_a_busy_consumer_are_dealt_to_others_in_the_next_window_and_come_back() -> None:
    async with virtual_fleet(settings=TimelineSettings(window_ms=5_000)) as fleet:
        busy = fleet.consumer(id="busy")
        fleet.consumer(id="ready")
        await asyncio.sleep(6)
        assert fleet.dispatcher.shares("line").keys() == {"busy", "ready"}
        fleet.dispatcher.ready("line", busy, busy=True)
        await asyncio.sleep(5)
        assert fleet.dispatcher.shares("line").keys() == {"ready"}
        fleet.dispatcher.ready("line", busy, busy=False)
        await asyncio.sleep(10)
        assert fleet.dispatcher.shares("line").keys() == {"busy", "ready"}


async def test_messages_of_busy_consumers_wait_for_the_first_that_is_ready() -> None:
    async with virtual_fleet(settings=TimelineSettings(window_ms=1_000)) as fleet:
        consumers = [fleet.consumer(id=f"w{number}") for number in range(3)]
        for consumer in consumers:
            fleet.dispatcher.ready("line", consumer, busy=True)
        await fleet.schedule(*([fleet.now_ms()] * 30))
        await asyncio.sleep(10)
        assert not fleet.received
        fleet.dispatcher.ready("line", consumers[1], busy=False)
        await fleet.until(lambda: len(fleet.received) == 30, 3)
        assert {one.consumer for one in fleet.received} == {"w1"}


async def test_consumers_learn_what_waits_for_them() -> None:
    async with virtual_fleet() as fleet:
        assert fleet.dispatcher.load("line") is None
        consumer = fleet.consumer(max_in_flight=1)
        await asyncio.sleep(2)
        quiet = fleet.dispatcher.load("line")
        assert quiet is not None
        assert (quiet.available, quiet.arrivals_per_s, quiet.late_ms) == (0, 0, 0)
        await fleet.schedule(*(fleet.now_ms() + 10 * number for number in range(1_000)))
        await asyncio.sleep(8)
        spike = fleet.dispatcher.load("line")
        assert spike is not None
        assert 700 <= spike.available <= 820, "with those that are due within 100 ms"
        assert 70 <= spike.arrivals_per_s <= 110
        assert 6_500 <= spike.late_ms <= 8_100, "the oldest message waits since the first second"
        fleet.dispatcher.detach("line", consumer)
        await asyncio.sleep(2)
        assert fleet.dispatcher.load("line") is None


async def test_a_consumer_that_does_not_answer_gets_nothing_more() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(id="stopped")
        fleet.muted.add("stopped")
        await asyncio.sleep(10)
        await fleet.schedule(fleet.now_ms())
        await asyncio.sleep(10)
        assert not fleet.received
        fleet.muted.clear()
        await fleet.until(lambda: len(fleet.received) == 1, 5)


async def test_work_of_a_busy_consumer_goes_to_others_in_a_later_window() -> None:
    async with virtual_fleet(settings=TimelineSettings(window_ms=5_000, dealer=DealerKind.RANGES)) as fleet:
        busy = fleet.consumer(id="a")
        fleet.consumer(id="b", max_in_flight=1_000)
        await asyncio.sleep(0.1)
        fleet.dispatcher.ready("line", busy, busy=True)
        await fleet.schedule(*([fleet.now_ms()] * 100))
        await fleet.until(lambda: len(fleet.received) == 100, 60)
        assert {one.consumer for one in fleet.received} == {"b"}


async def test_a_lease_that_runs_out_brings_the_message_back_and_its_token_is_refused() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(lease_ms=2_000)
        await fleet.schedule(fleet.now_ms() + 100)
        await fleet.until(lambda: len(fleet.received) == 2, 10)
        first, second = fleet.received
        assert second.granted.lease.attempts == 2
        assert 2_000 <= second.at_ms - first.at_ms <= 3_100
        assert await fleet.complete([first]) == [CommandOutcome.STALE]
        assert await fleet.complete([second]) == [CommandOutcome.DONE]
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_release_extend_and_wrong_operations() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(lease_ms=1_000)
        await fleet.schedule(fleet.now_ms())
        await fleet.until(lambda: len(fleet.received) == 1)
        seq, token = fleet.received[0].granted.lease[:2]
        settle = fleet.dispatcher.settle
        refused, extended = await settle("line", [Extend(seq, token, 0), Extend(seq, token, fleet.now_ms() + 10_000)])
        assert isinstance(refused, BadLease)
        assert extended is CommandOutcome.DONE
        await asyncio.sleep(9)
        assert len(fleet.received) == 1
        due_ms = fleet.now_ms() + 500
        assert await settle("line", [Release(seq, token, due_ms)]) == [CommandOutcome.DONE]
        await fleet.until(lambda: len(fleet.received) == 2)
        assert 0 <= fleet.received[1].at_ms - due_ms <= 2
        assert await settle("line", [Complete(seq, token)]) == [CommandOutcome.STALE]
        assert await settle("line", [Complete(424_242, 1)]) == [CommandOutcome.MISSING]


async def test_moved_and_cancelled_messages() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        sooner, later, never, held = await fleet.schedule(*(fleet.now_ms() + ms for ms in (60_000, 2_000, 2_000, 0)))
        move, cancel = fleet.dispatcher.move, fleet.dispatcher.cancel
        await fleet.until(lambda: len(fleet.received) == 1)
        assert await move("line", [sooner], fleet.now_ms() + 1_000) == [CommandOutcome.DONE]
        assert await move("line", [later], fleet.now_ms() + 30_000) == [CommandOutcome.DONE]
        assert await cancel("line", [never, "unknown"]) == [CommandOutcome.DONE, CommandOutcome.MISSING]
        assert await cancel("line", [sooner], group="other") == [CommandOutcome.NOT_OWNER]
        assert await cancel("line", [held]) == [CommandOutcome.LEASED]
        await fleet.complete(fleet.received)
        await fleet.until(lambda: len(fleet.received) == 3)
        assert [one.id for one in fleet.received] == [held, sooner, later]
        assert all(0 <= one.late_ms <= 2 for one in fleet.received[1:])


async def test_the_free_messages_of_a_lost_consumer_go_to_its_backup_at_once() -> None:
    async with virtual_fleet(settings=TimelineSettings(window_ms=3_000)) as fleet:
        lost = fleet.consumer(id="a1", rack="a", max_in_flight=1)
        fleet.consumer(id="b1", rack="b", max_in_flight=1_000)
        await asyncio.sleep(4)
        await fleet.schedule(*([fleet.now_ms() + 1_000] * 50))
        await asyncio.sleep(0.5)
        fleet.dispatcher.detach("line", lost)
        due_ms = fleet.now_ms() + 500
        await fleet.until(lambda: len(fleet.received) == 50, 20)
        assert max(one.at_ms for one in fleet.received) - due_ms < 100


async def test_two_racks_race_and_every_message_is_leased_once() -> None:
    async with virtual_fleet(settings=TimelineSettings(window_ms=1_000)) as fleet:
        for rack in "abc":
            for number in range(2):
                fleet.consumer(id=f"{rack}{number}", rack=rack, max_in_flight=40)
        await asyncio.sleep(2)
        await fleet.schedule(*([fleet.now_ms()] * 200))
        await fleet.until(lambda: len(fleet.received) == 200, 5)
        await asyncio.sleep(5)
        assert len({one.id for one in fleet.received}) == 200
        assert len({one.consumer for one in fleet.received}) == 6


async def test_dead_letters_go_to_their_timeline_also_without_consumers() -> None:
    settings = TimelineSettings(lease_ms=1_000, max_attempts=2, dead_letter="timeline:dead-letters")

    async with virtual_fleet(settings=settings) as fleet:
        consumer = fleet.consumer()
        (message,) = await fleet.schedule(fleet.now_ms())
        await fleet.schedule(fleet.now_ms() + 100_000)
        await fleet.until(lambda: len(fleet.received) == 2)
        fleet.dispatcher.detach("line", consumer)
        for _ in range(100):
            if await fleet.dispatcher.count("dead-letters", EVERYTHING):
                break
            await asyncio.sleep(0.1)
        (dead,) = await fleet.dispatcher.messages("dead-letters", EVERYTHING, 10)
        assert dead.id.startswith(message)
        assert dead.body == b"body"
        assert await fleet.dispatcher.count("line", EVERYTHING) == 1
        fleet.consumer("dead-letters")
        await fleet.until(lambda: len(fleet.received) == 3)


async def test_dead_letters_go_to_their_topic() -> None:
    settings = TimelineSettings(lease_ms=1_000, max_attempts=1, dead_letter="topic:failed")
    appended: list[tuple[str, bytes | None, bytes, dict[str, bytes]]] = []

    async def append(topic: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> None:
        appended.append((topic, key, value, dict(headers)))

    async with virtual_fleet(settings=settings, append=append) as fleet:
        fleet.consumer()
        (message,) = await fleet.schedule(fleet.now_ms(), key=b"k")
        await fleet.until(lambda: bool(appended))
        headers = {"tidemill-timeline": b"line", "tidemill-id": message.encode(), "tidemill-attempts": b"1"}
        assert appended == [("failed", b"k", b"body", headers)]
        await asyncio.sleep(1)
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_a_dead_letter_that_is_refused_stops_neither_the_others_nor_the_living(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_core, "FIND_BYTES_MAX", 10)  # bodies come two at a time
    settings = TimelineSettings(lease_ms=1_000, max_attempts=1, dead_letter="topic:failed")
    appended: list[bytes] = []
    refused: list[bytes] = []

    async def append(_: str, key: bytes | None, __: bytes, ___: list[tuple[str, bytes]]) -> None:
        if key == b"large" and len(refused) < 3:
            refused.append(key)
            raise StoreUnavailable("too large")
        appended.append(key or b"")

    async with virtual_fleet(settings=settings, append=append) as fleet:
        consumer = fleet.consumer()
        for key in (b"a", b"large", b"b", b"c", b"d"):
            await fleet.schedule(fleet.now_ms(), key=key)
        await fleet.until(lambda: len(fleet.received) == 5)
        fleet.dispatcher.detach("line", consumer)
        await fleet.until(lambda: len(appended) == 4)
        fleet.consumer(id="w2")
        due_ms = fleet.now_ms() + 1_000
        await fleet.schedule(*range(due_ms, due_ms + 80))
        await fleet.until(lambda: len(fleet.received) == 85, 5)
        assert max(one.late_ms for one in fleet.received[5:]) < 100
        await fleet.complete(fleet.received[5:])
        await fleet.until(lambda: b"large" in appended)
        await asyncio.sleep(60)
        assert sorted(appended) == [b"a", b"b", b"c", b"d", b"large"]
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_bodies_that_the_store_gives_out_a_few_at_a_time_are_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_core, "FIND_BYTES_MAX", 10)  # bodies come two at a time

    async with virtual_fleet() as fleet:
        due_ms = fleet.now_ms() + 20_000
        ids = await fleet.schedule(*([due_ms] * 40))
        fleet.consumer()
        await asyncio.sleep(18)
        await fleet.dispatcher.move("line", ids[:20], due_ms + 1)
        await fleet.until(lambda: len(fleet.received) == 40, 30)
        assert max(one.late_ms for one in fleet.received) < 10


async def test_a_deleted_dead_letter_timeline_is_created_again() -> None:
    async with virtual_fleet() as fleet:
        settings = TimelineSettings(lease_ms=1_000, max_attempts=1, dead_letter="timeline:dead-letters")
        await fleet.dispatcher.alter("line", settings)
        await fleet.dispatcher.delete("dead-letters")
        consumer = fleet.consumer()
        await fleet.schedule(fleet.now_ms())
        await fleet.until(lambda: len(fleet.received) == 1)
        fleet.dispatcher.detach("line", consumer)
        await asyncio.sleep(10)
        assert await fleet.dispatcher.count("dead-letters", EVERYTHING) == 1
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_unsent_leases_of_a_consumer_that_left_go_to_others_at_once() -> None:
    async with virtual_fleet(settings=TimelineSettings(lease_ms=30_000)) as fleet:
        first = fleet.consumer(id="w1")
        due_ms = fleet.now_ms() + 10_000
        await fleet.schedule(*([due_ms] * 50))
        await fleet.until(lambda: len(first.held) == 50)
        assert fleet.now_ms() < due_ms
        fleet.dispatcher.detach("line", first)
        fleet.consumer(id="w2")
        await fleet.until(lambda: len(fleet.received) == 50, 30)
        assert {one.consumer for one in fleet.received} == {"w2"}
        assert max(one.late_ms for one in fleet.received) < 1_000


async def test_a_second_consumer_of_the_same_id_replaces_the_first() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(id="w")
        fleet.consumer(id="w")
        assert [type(error) for error in fleet.ended] == [ConsumerReplaced]
        await fleet.schedule(fleet.now_ms())
        await fleet.until(lambda: len(fleet.received) == 1)
        assert len(fleet.dispatcher.consumers("line")) == 1


async def test_deleting_ends_consumers_and_frees_the_name() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        await fleet.schedule(*([fleet.now_ms() + 60_000] * 5_000))
        await fleet.dispatcher.delete("line")
        assert len(fleet.ended) == 1
        with pytest.raises((TimelineDeleting, UnknownTimeline)):
            await fleet.schedule(fleet.now_ms())
        with pytest.raises(TimelineDeleting):
            await fleet.dispatcher.create("line", TimelineSettings())
        await fleet.until(lambda: not fleet.dispatcher.timelines())
        await fleet.dispatcher.create("line", TimelineSettings())
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_altered_settings_hold_for_the_consumers_that_come_again() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        await fleet.dispatcher.alter("line", TimelineSettings(lease_ms=500))
        assert fleet.ended[0].retriable
        fleet.consumer()
        await fleet.schedule(fleet.now_ms())
        await fleet.until(lambda: len(fleet.received) == 2, 2)


async def test_a_wrong_message_refuses_its_batch_and_changes_nothing() -> None:
    async with virtual_fleet(settings=TimelineSettings(body_bytes_max=10)) as fleet:
        batch = [ScheduleRequest(b"fine", fleet.now_ms()), ScheduleRequest(b"x" * 11, fleet.now_ms())]
        with pytest.raises(BodyTooLarge):
            await fleet.dispatcher.schedule("line", batch)
        assert await fleet.dispatcher.count("line", EVERYTHING) == 0


async def test_a_natural_id_is_scheduled_once() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        for _ in range(3):
            assert await fleet.schedule(fleet.now_ms() + 1_000, id="natural") == ["natural"]
        await asyncio.sleep(5)
        assert [one.id for one in fleet.received] == ["natural"]


async def test_counts_by_status_and_histogram() -> None:
    async with virtual_fleet() as fleet:
        start = fleet.now_ms()
        await fleet.schedule(*(start + 1_000 * number for number in range(10)))
        fleet.consumer(max_in_flight=2)
        await asyncio.sleep(4.5)
        counts = [
            await fleet.dispatcher.count("line", Selection(status=status))
            for status in (MessageStatus.WAITING, MessageStatus.AVAILABLE, MessageStatus.LEASED)
        ]
        assert counts == [5, 3, 2]
        assert await fleet.dispatcher.histogram("line", Selection(start + 5_000, start + 10_000), 5) == [1] * 5


async def test_the_dispatcher_does_not_poll_while_no_message_is_due() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        await fleet.schedule(fleet.now_ms() + 3_600_000)
        waits = fleet.world.loop.jumping.waits
        await asyncio.sleep(600)
        assert (fleet.world.loop.jumping.waits - waits) < 600 * 8


async def test_a_rescan_without_room_continues_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise what is scheduled meanwhile waits for the next rescan, a minute later."""
    monkeypatch.setattr(delivery, "QUEUED_MESSAGES_MAX", 5)
    monkeypatch.setattr(prefetcher, "FILL_MESSAGES_MAX", 10)

    async with virtual_fleet(settings=TimelineSettings(lease_ms=600_000)) as fleet:
        fleet.consumer(max_in_flight=1)
        fleet.dispatcher._deliveries["line"]._prefetch._messages_max = 20
        await asyncio.sleep(1)
        await fleet.schedule(*([fleet.now_ms()] * 18))
        await asyncio.sleep(prefetcher.RESCAN_MS / 1_000)
        [late] = await fleet.schedule(fleet.now_ms())
        began_s = fleet.world.loop.time()
        while late not in {one.id for one in fleet.received}:
            await fleet.complete(fleet.received[-1:])
            await asyncio.sleep(0.01)
            assert fleet.world.loop.time() - began_s < 10, "it waits for the next rescan"


async def test_a_full_prefetch_buffer_resumes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetcher, "FILL_MESSAGES_MAX", 10)

    async with virtual_fleet() as fleet:
        fleet.consumer()
        fleet.dispatcher._deliveries["line"]._prefetch._messages_max = 20
        await asyncio.sleep(0.1)
        ids = await fleet.schedule(*([fleet.now_ms() + 200] * 15))
        await fleet.dispatcher.move("line", ids[:1], fleet.now_ms() + 150)  # it is looked up while there is no room
        await asyncio.sleep(10)
        await fleet.schedule(fleet.now_ms())
        await fleet.until(lambda: len(fleet.received) == 16, limit_s=5)


async def test_a_lease_that_ended_before_the_frontier_is_looked_up_however_late_that_is_noticed() -> None:
    """Its message stands at the end of the lease: a fill that has read on from there does not come back for it."""

    class SlowStore(MemoryTimelineStore):
        async def acquire(self, *which: Any, **how: Any) -> list[LeaseGrant | None]:
            leases = await super().acquire(*which, **how)
            await asyncio.sleep(0.05)
            return leases

    async with virtual_fleet(store=SlowStore(), settings=TimelineSettings(lease_ms=1_000)) as fleet:
        fleet.consumer(max_in_flight=10)
        await fleet.schedule(fleet.now_ms() + 200)
        await fleet.until(lambda: len(fleet.received) == 1)
        message, lease = fleet.received[0].granted
        await fleet.schedule(lease.until_ms + 60)  # this one is being leased when the other lease ends
        await fleet.until(lambda: fleet.now_ms() >= lease.until_ms - 10)
        fleet.dispatcher._deliveries["line"]._prefetch.frontier = TimelinePosition(lease.until_ms, message.seq)
        await fleet.until(lambda: [one.id for one in fleet.received].count(message.id) == 2, limit_s=2)


async def test_room_is_not_looked_for_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetcher, "FILL_MESSAGES_MAX", 5)

    async with virtual_fleet() as fleet:
        fleet.consumer()
        await asyncio.sleep(1)
        line = fleet.dispatcher._deliveries["line"]
        line._prefetch._messages_max = 10
        turns = 0
        pause_s = line._feed._pause_s

        def counted() -> float | None:
            nonlocal turns
            turns += 1
            return pause_s()

        line._feed._pause_s = counted  # type: ignore[method-assign]  # counts the turns of the feed
        await fleet.schedule(*([fleet.now_ms() + 3_500] * 30))
        await fleet.until(lambda: len(fleet.received) == 30)
        assert turns < 100
