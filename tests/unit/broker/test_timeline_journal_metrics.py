"""The metrics of the journal of replicated timelines, with two brokers in one process."""

from pathlib import Path

import pytest
from tests.support.replicated_timelines import JournalWorld
from tests.support.waiting import eventually_async

from tidemill.broker.timeline_journal_metrics import journal_readings
from tidemill.model.metrics import HistogramReading
from tidemill.timelines.core.errors import StoreUnavailable
from tidemill.timelines.core.message import NewMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.replicated.partition_counts import DAMAGED
from tidemill.timelines.replicated.store import ReplicatedTimelineStore

NOW = 1_000_000
PREFIX = "tidemill_timeline_"


def values(store: ReplicatedTimelineStore, name: str, **labels: str) -> float:
    """The sum of a metric over the partitions; of a histogram the number of its values."""
    found = [
        float(each.histogram.count) if isinstance(each, HistogramReading) else each.value
        for each in journal_readings(lambda: store.partitions)()
        if each.name == f"{PREFIX}{name}" and labels.items() <= dict(each.labels).items()
    ]
    return sum(found)


async def begun(home: Path, journal_bytes: int = 1_000_000) -> JournalWorld:
    """Two brokers; the first leads both partitions."""
    world = JournalWorld(home, partitions=2, journal_bytes=journal_bytes)
    world.now_ms = NOW
    for number in (1, 2):
        await world.start(number)
    for step in (Create("line"), MakeReady("line")):
        await world.stores[1].govern(step)
    return world


async def stop(world: JournalWorld) -> None:
    for number in list(world.stores):
        await world.stop(number)


async def schedule(world: JournalWorld, numbers: range) -> None:
    await world.stores[1].schedule("line", [NewMessage(f"m{each}", NOW, b"body" * 10, 7) for each in numbers])


async def test_a_follower_reaches_the_position_of_its_leader(tmp_path: Path) -> None:
    world = await begun(tmp_path)
    one, two = world.stores[1], world.stores[2]
    await schedule(world, range(20))
    ends = sum(log.end.next_offset for log in world.logs)
    assert ends > 2
    assert values(one, "index_position") == ends
    assert (values(one, "index_serving"), values(two, "index_serving")) == (2, 0)
    assert values(one, "journal_append_seconds") == world.appended > 0
    assert values(one, "journal_bytes") == values(two, "journal_bytes") > 20 * 40
    await eventually_async(lambda: values(two, "index_lag_entries") == 0)
    assert values(two, "index_position") == ends
    world.cut.add(2)
    await schedule(world, range(20, 30))
    assert values(one, "index_lag_entries") == 0
    assert values(two, "index_lag_entries") == sum(log.end.next_offset for log in world.logs) - ends > 0
    world.cut.clear()
    await eventually_async(lambda: values(two, "index_lag_entries") == 0)
    await stop(world)


async def test_appends_that_fail_are_counted_by_their_error(tmp_path: Path) -> None:
    world = await begun(tmp_path)
    store = world.stores[1]
    assert values(store, "journal_append_failures") == 0
    world.losses = 1.0
    store._wait_s = 0.2
    with pytest.raises(StoreUnavailable):
        await schedule(world, range(1))
    assert values(store, "journal_append_failures", error="StoreUnavailable") >= 1
    world.losses = 0.0
    await stop(world)


async def test_a_rebuilt_index_and_a_snapshot_are_counted(tmp_path: Path) -> None:
    world = await begun(tmp_path, journal_bytes=100)
    await eventually_async(lambda: values(world.stores[1], "journal_snapshot_seconds") >= 1)
    await schedule(world, range(20))
    await world.stop(2)
    for path in (tmp_path / "broker2").glob("*.db"):
        path.write_bytes(b"damaged" * 1_000)
    store = await world.start(2)
    await eventually_async(lambda: values(store, "index_rebuilds", reason=DAMAGED) == 2)
    await eventually_async(lambda: values(store, "index_lag_entries") == 0)
    await stop(world)
