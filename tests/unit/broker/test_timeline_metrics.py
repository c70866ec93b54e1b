"""The metrics of timelines: each operation, error and lease is counted once and under its name."""

import asyncio

import pytest
from tests.support.readings import histogram_of, values_of
from tests.support.virtual_timelines import Fleet, virtual_fleet

from tidemill.broker.timeline_metrics import timeline_readings
from tidemill.model.timeline_errors import BodyTooLarge, StoreUnavailable, UnknownTimeline
from tidemill.timelines import stats
from tidemill.timelines.core.lease import Command, Complete, Extend, Release
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dispatcher import ScheduleRequest
from tidemill.timelines.memory import MemoryTimelineStore

pytestmark = pytest.mark.event_loop("virtual_selector")


def metrics(fleet: Fleet) -> dict[str, float]:
    return values_of(timeline_readings(fleet.dispatcher)())


def operations(fleet: Fleet, metric: str, name: str = "line") -> dict[str, float]:
    """The counts of a metric by operation, without those that are 0."""
    start, end = f'{metric}{{timeline="{name}",op="', '"}'
    found = {key: value for key, value in metrics(fleet).items() if key.startswith(start)}
    return {key.removeprefix(start).removesuffix(end): value for key, value in found.items() if value}


def errors(fleet: Fleet) -> dict[str, float]:
    """The errors by operation and reason."""
    found = operations(fleet, "tidemill_timeline_errors")
    return {key.replace('",reason="', " "): value for key, value in found.items()}


async def test_each_operation_is_counted_under_its_name() -> None:
    async with virtual_fleet(settings=TimelineSettings(lease_ms=10_000)) as fleet:
        fleet.consumer(max_in_flight=3)
        due_ms = fleet.now_ms() + 1_000
        first, *_, fourth, fifth = await fleet.schedule(*[due_ms] * 3, due_ms + 3_600_000, due_ms + 3_600_000)
        await fleet.schedule(due_ms, id=first)
        await asyncio.sleep(2)
        assert operations(fleet, "tidemill_timeline_messages") == {"scheduled": 5, "duplicate": 1}
        assert operations(fleet, "tidemill_timeline_leases") == {"leased": 3}
        held = [(one.granted.message.seq, one.granted.lease.token) for one in fleet.received]
        now_ms = fleet.now_ms()
        await fleet.dispatcher.settle(
            "line", [Complete(*held[0]), Extend(*held[1], now_ms + 60_000), Release(*held[2], now_ms + 7_200_000)]
        )
        await fleet.dispatcher.cancel("line", [fourth])
        await fleet.dispatcher.move("line", [fifth], now_ms + 7_200_000)
        await asyncio.sleep(70)
        assert operations(fleet, "tidemill_timeline_messages") == {
            "scheduled": 5,
            "duplicate": 1,
            "completed": 1,
            "released": 1,
            "cancelled": 1,
            "moved": 1,
        }
        assert operations(fleet, "tidemill_timeline_leases") == {"leased": 4, "extended": 1, "expired": 1}
        readings = list(timeline_readings(fleet.dispatcher)())
        attempts = histogram_of(readings, "tidemill_timeline_delivery_attempts", timeline="line")
        assert attempts.counts[:2] == [3, 1]
        assert histogram_of(readings, "tidemill_timeline_lateness_seconds", timeline="line").count == 3
        assert metrics(fleet)['tidemill_timeline_leased_bytes{timeline="line"}'] == 4 * len(b"body")


async def test_each_rejected_operation_is_counted_with_its_reason() -> None:
    async with virtual_fleet(settings=TimelineSettings(lease_ms=5_000, body_bytes_max=10)) as fleet:
        fleet.consumer()
        (first,) = await fleet.schedule(fleet.now_ms())
        await asyncio.sleep(0.5)
        (one,) = fleet.received
        held = one.granted.message.seq, one.granted.lease.token
        with pytest.raises(BodyTooLarge):
            await fleet.dispatcher.schedule("line", [ScheduleRequest(b"x" * 11, 0), ScheduleRequest(b"", 0)])
        await fleet.dispatcher.cancel("line", [first, "none"])
        await fleet.dispatcher.move("line", [first], fleet.now_ms())
        stale: list[Command] = [
            Complete(held[0], 99),
            Release(held[0], 99, 5),
            Extend(held[0], 99, fleet.now_ms() + 100),
        ]
        await fleet.dispatcher.settle("line", [*stale, Extend(*held, 0)])
        assert errors(fleet) == {
            "scheduled BodyTooLarge": 2,
            "cancelled LeaseIsLive": 1,
            "cancelled UnknownMessage": 1,
            "moved LeaseIsLive": 1,
            "completed StaleLease": 1,
            "released StaleLease": 1,
            "extended StaleLease": 1,
            "extended BadLease": 1,
        }


class FailingStore(MemoryTimelineStore):
    """Fails each call that changes a message, while `failing` is set."""

    failing = False

    async def settle(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if self.failing:
            raise StoreUnavailable("the test says so")
        return await super().settle(*args, **kwargs)

    async def acquire(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if self.failing:
            raise StoreUnavailable("the test says so")
        return await super().acquire(*args, **kwargs)


async def test_failures_of_the_store_are_counted_for_every_operation_of_the_batch() -> None:
    store = FailingStore()
    async with virtual_fleet(store=store) as fleet:
        fleet.consumer()
        await fleet.schedule(fleet.now_ms(), fleet.now_ms())
        await asyncio.sleep(0.5)
        store.failing = True
        commands = [Complete(one.granted.message.seq, one.granted.lease.token) for one in fleet.received]
        with pytest.raises(StoreUnavailable):
            await fleet.dispatcher.settle("line", commands)
        assert errors(fleet) == {"completed StoreUnavailable": 2}
        await fleet.schedule(fleet.now_ms())
        await asyncio.sleep(0.3)
        assert errors(fleet)["leased StoreUnavailable"] >= 1
        store.failing = False
        await fleet.until(lambda: len(fleet.received) == 3)


async def test_a_lease_that_was_lost_to_a_change_is_a_failed_one() -> None:
    store = MemoryTimelineStore()
    async with virtual_fleet(store=store) as fleet:
        fleet.consumer()
        (first,) = await fleet.schedule(fleet.now_ms() + 2_000)
        await asyncio.sleep(1)
        from_elsewhere = [one for one in await store.find("line", now_ms=fleet.now_ms(), limit=9) if one.id == first]
        line = store._line("line")
        line.put(from_elsewhere[0]._replace(version=7, due_ms=fleet.now_ms() + 3_600_000))
        await asyncio.sleep(2)
        assert errors(fleet) == {f"leased {stats.CHANGED}": 1}
        assert fleet.received == []


async def test_dead_letters_are_counted_and_those_that_cannot_be_moved_too() -> None:
    refusing = True

    async def append(*_: object) -> None:
        if refusing:
            raise StoreUnavailable("the topic rejects")

    settings = TimelineSettings(lease_ms=1_000, max_attempts=1, dead_letter="topic:dead")
    async with virtual_fleet(settings=settings, append=append) as fleet:
        fleet.consumer()
        await fleet.schedule(fleet.now_ms())
        await asyncio.sleep(3)
        assert errors(fleet)["dead StoreUnavailable"] >= 1
        refusing = False
        await fleet.until(lambda: operations(fleet, "tidemill_timeline_messages").get("dead") == 1)


async def test_commands_and_their_errors_are_counted() -> None:
    async with virtual_fleet() as fleet:
        await fleet.dispatcher.create("more", TimelineSettings())
        await fleet.dispatcher.alter("more", TimelineSettings(lease_ms=5_000))
        await fleet.dispatcher.delete("more")
        await fleet.dispatcher.removed("more")
        with pytest.raises(UnknownTimeline):
            await fleet.dispatcher.delete("more")
        found = metrics(fleet)
        counts = {op: found[f'tidemill_timeline_commands{{op="{op}"}}'] for op in stats.COMMANDS}
        assert counts == {"created": 2, "altered": 1, "deleted": 2}
        assert found['tidemill_timeline_command_errors{op="deleted",reason="UnknownTimeline"}'] == 1


async def test_the_counts_of_a_deleted_timeline_are_dropped() -> None:
    async with virtual_fleet() as fleet:
        await fleet.schedule(fleet.now_ms())
        assert fleet.dispatcher.stats.names() == ["line"]
        await fleet.dispatcher.delete("line")
        assert fleet.dispatcher.stats.names() == []
        assert not [key for key in metrics(fleet) if 'timeline="line"' in key]


async def test_timelines_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "NAMED_MAX", 3)
    async with virtual_fleet() as fleet:
        for number in range(50):
            name = f"line-{number:02}"
            await fleet.dispatcher.create(name, TimelineSettings())
            await fleet.schedule(fleet.now_ms() + 5_000, name=name)
            fleet.consumer(name, id=f"w{number}")
        found = metrics(fleet)
        shown = {key.partition('timeline="')[2].partition('"')[0] for key in found if 'timeline="' in key}
        assert shown == {"line-00", "line-01", "line-02", stats.OTHER_TIMELINES}
        assert operations(fleet, "tidemill_timeline_messages", stats.OTHER_TIMELINES) == {"scheduled": 47}
        assert found[f'tidemill_timeline_consumers{{timeline="{stats.OTHER_TIMELINES}"}}'] == 47
        assert sum(fleet.dispatcher.served().values()) == 50


async def test_consumers_report_their_latency_and_the_slowest_counts() -> None:
    async with virtual_fleet() as fleet:
        for name, latency_us in (("fast", 700), ("slow", 2_500), ("other", 900)):
            consumer = fleet.consumer(id=name, max_in_flight=3)
            fleet.dispatcher.heard("line", consumer, latency_us=latency_us, drift_us=0)
        found = metrics(fleet)
        assert found['tidemill_timeline_consumers{timeline="line"}'] == 3
        assert found['tidemill_timeline_consumer_latency_max_seconds{timeline="line"}'] == 0.0025


async def test_the_largest_lateness_and_the_delay_of_timers_are_kept() -> None:
    async with virtual_fleet() as fleet:
        fleet.dispatcher.stats.of("line").lateness.add(0.5)
        fleet.dispatcher.stats.of("line").lateness.add(0.25)
        fleet.dispatcher.stats.of("line").wakeup.add(0.002)
        readings = list(timeline_readings(fleet.dispatcher)())
        assert values_of(readings)['tidemill_timeline_lateness_max_seconds{timeline="line"}'] == 0.5
        assert histogram_of(readings, "tidemill_timeline_timer_delay_seconds", timeline="line").total == 0.002
