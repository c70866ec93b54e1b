"""Recurring messages on replicas: the leader computes the next time, and the journal has it."""

from pathlib import Path

import pytest
from tests.support.replicated_timelines import JournalWorld
from tests.support.waiting import eventually_async

from tidemill.timelines.core import lease as lease_core
from tidemill.timelines.core.lease import Cancel, Claim, Command, CommandOutcome, Complete
from tidemill.timelines.core.message import NewMessage, TimedMessage
from tidemill.timelines.core.recurrence import Recurrence
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.replicated.store import ReplicatedTimelineStore

NOW = 1_767_225_600_000  # 2026-01-01T00:00Z
DAY_MS = 86_400_000
DAILY = Recurrence("0 9 * * *", "Europe/Berlin")


async def everything(store: ReplicatedTimelineStore) -> list[TimedMessage]:
    return await store.find("line", now_ms=NOW, limit=100, bodies=True)


async def completed(store: ReplicatedTimelineStore, now_ms: int, *before: Command) -> list[CommandOutcome]:
    """Lease all that is due and complete it."""
    found = [one for one in await store.find("line", now_ms=now_ms, limit=100) if one.due_ms <= now_ms]
    claims = [Claim(one.seq, one.version, "w", now_ms + 5_000, one.due_ms) for one in found]
    leases = [one for one in await store.acquire("line", claims, now_ms=now_ms) if one is not None]
    if before:
        await store.settle("line", before, now_ms=now_ms)
    return await store.settle("line", [Complete(one.seq, one.token) for one in leases], now_ms=now_ms)


@pytest.mark.parametrize("journal_bytes", [2_000, 1 << 20], ids=["restated", "replayed"])
async def test_a_replica_takes_the_times_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, journal_bytes: int
) -> None:
    world = JournalWorld(tmp_path, 1, journal_bytes=journal_bytes)
    world.now_ms = NOW
    leader = await world.start(1)
    for step in (Create("line"), MakeReady("line")):
        await leader.govern(step)
    rules = {"daily": DAILY, "ends": DAILY._replace(left=2), "cancelled": DAILY}
    await leader.schedule(
        "line", [NewMessage(name, NOW, b"b", 7, recurrence=rule.to_text()) for name, rule in rules.items()]
    )
    await leader.schedule("line", [NewMessage("once", NOW, b"b", 7)])
    outcomes = await completed(leader, NOW, Cancel("cancelled"))
    assert sorted(one.value for one in outcomes) == ["done", "done", "recurred", "recurred"]
    for day in range(1, 30):
        await completed(leader, NOW + day * DAY_MS)
    (left,) = await everything(leader)
    assert (left.id, left.recurrence) == ("daily", DAILY.to_text())
    assert left.due_ms > NOW + 29 * DAY_MS

    def computes(*_: object) -> None:
        raise AssertionError("a replica may have another version of the time zone database")

    monkeypatch.setattr(lease_core, "next_occurrence", computes)
    is_restated = journal_bytes < 1 << 20
    if is_restated:
        await eventually_async(lambda: world.logs[0].start_offset > 0, "the journal is not restated")
    replica = await world.start(2)
    partition = replica.partitions[0]
    await eventually_async(lambda: partition.replica is not None)
    assert (world.logs[0].start_offset > 0) == is_restated
    await world.stop(1)
    world.logs[0].lead(2)
    assert await everything(replica) == [left]
    await world.stop(2)
