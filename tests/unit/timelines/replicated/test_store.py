"""Replicated timelines over several partitions and brokers: what the contract of one partition cannot show."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.replicated_timelines import JournalWorld

from tidemill.timelines.core.errors import StoreUnavailable, TimelineDeleting, UnknownTimeline
from tidemill.timelines.core.lease import Claim, CommandOutcome, Complete, LeaseGrant, MoveToTimeline
from tidemill.timelines.core.message import DueSpan, NewMessage, Selection, TimelinePosition
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.replicated.store import ReplicatedTimelineStore

NOW = 1_000_000
PARTITIONS = 3


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[JournalWorld]:
    """Two brokers; each leads some partitions."""
    world = JournalWorld(tmp_path, PARTITIONS)
    world.now_ms = NOW
    for number in (1, 2):
        await world.start(number)
    world.logs[1].lead(2)
    for step in (Create("line"), MakeReady("line")):
        await world.stores[2].govern(step)
    yield world
    for number in list(world.stores):
        await world.stop(number)


def new(number: int, due_ms: int | None = None) -> NewMessage:
    return NewMessage(f"m{number}", NOW + number if due_ms is None else due_ms, b"body", 7)


async def leases(store: ReplicatedTimelineStore, line: str = "line") -> list[LeaseGrant]:
    found = await store.find(line, now_ms=NOW + 100, limit=100)
    claims = [Claim(one.seq, one.version, "w", NOW + 5_000, one.due_ms) for one in found]
    return [one for one in await store.acquire(line, claims, now_ms=NOW + 100) if one is not None]


async def test_messages_of_all_partitions_are_listed_in_order_on_any_broker(world: JournalWorld) -> None:
    await world.stores[1].schedule("line", [new(number) for number in range(40)])
    used = {one.seq >> 44 for one in await world.stores[2].find("line", now_ms=NOW, limit=100)}
    assert used == set(range(PARTITIONS))
    for store in world.stores.values():
        listed = []
        after: TimelinePosition | None = None
        while page := await store.find("line", now_ms=NOW, limit=7, after=after, bodies=True):
            listed += [one.id for one in page]
            after = TimelinePosition(page[-1].due_ms, page[-1].seq)
        assert listed == [f"m{number}" for number in range(40)]
        assert await store.span("line") == DueSpan(NOW, NOW + 39)
        assert await store.tally("line", Selection(NOW, NOW + 40), now_ms=NOW, bars=4) == [10] * 4
        assert (await store.backlogs(now_ms=NOW))["line"].total == 40


async def test_an_id_is_one_message_whichever_broker_schedules_it(world: JournalWorld) -> None:
    await world.stores[1].schedule("line", [new(number) for number in range(10)])
    again = await world.stores[2].schedule("line", [new(number) for number in range(12)])
    assert [one.duplicate for one in again] == [True] * 10 + [False] * 2


async def test_a_dead_letter_can_be_found_by_its_id_and_returns_under_its_own(world: JournalWorld) -> None:
    store = world.stores[1]
    for step in (Create("dead"), MakeReady("dead")):
        await store.govern(step)
    await store.schedule("line", [new(number) for number in range(20)])
    found = await store.find("line", now_ms=NOW + 100, limit=100)
    moves = [MoveToTimeline(one.seq, 2, "dead") for one in found]
    await leases(store)
    assert set(await store.settle("line", moves, now_ms=NOW + 6_000)) == {CommandOutcome.DONE}
    dead = await world.stores[2].find("dead", now_ms=NOW + 6_000, limit=100)
    by_id = await world.stores[2].find("dead", Selection(ids=tuple(one.id for one in dead)), now_ms=NOW, limit=100)
    assert by_id == dead
    back = [MoveToTimeline(one.seq, one.version, "line", one.id.partition("@")[0]) for one in dead]
    assert set(await store.settle("dead", back, now_ms=NOW + 6_000)) == {CommandOutcome.DONE}
    names = {one.id for one in await store.find("line", now_ms=NOW + 6_000, limit=100)}
    assert names == {f"m{number}" for number in range(20)}


async def test_a_deleted_timeline_is_removed_from_every_partition(world: JournalWorld) -> None:
    store = world.stores[1]
    await store.schedule("line", [new(number) for number in range(30)])
    await store.govern(Delete("line"))
    with pytest.raises(TimelineDeleting):
        await world.stores[2].schedule("line", [new(99)])
    steps = 0
    while await store.govern(Purge("line", 4)) is not None:
        steps += 1
    assert steps > 1
    with pytest.raises(UnknownTimeline):
        await world.stores[2].find("line", now_ms=NOW, limit=1)
    for step in (Create("line"), MakeReady("line")):
        await store.govern(step)
    assert await store.find("line", now_ms=NOW, limit=10) == []


async def test_a_completion_counts_after_the_leader_is_lost(world: JournalWorld) -> None:
    await world.stores[1].schedule("line", [new(number) for number in range(12)])
    taken = await leases(world.stores[2])
    done = [Complete(one.seq, one.token) for one in taken[:6]]
    assert set(await world.stores[2].settle("line", done, now_ms=NOW + 200)) == {CommandOutcome.DONE}
    await world.stop(1)
    for log in world.logs:
        log.lead(2)
    left = await world.stores[2].find("line", now_ms=NOW, limit=100)
    assert {one.seq for one in left} == {one.seq for one in taken[6:]}
    late = [Complete(one.seq, one.token) for one in taken]
    outcomes = await world.stores[2].settle("line", late, now_ms=NOW + 200)
    assert outcomes == [CommandOutcome.MISSING] * 6 + [CommandOutcome.DONE] * 6


async def test_a_call_waits_for_the_next_leader_and_fails_when_there_is_none(world: JournalWorld) -> None:
    for log in world.logs:
        log.leader = -1
    waiting = asyncio.create_task(world.stores[1].schedule("line", [new(1)]))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    for log in world.logs:
        log.lead(2)
    assert [one.id for one in await waiting] == ["m1"]
    for log in world.logs:
        log.leader = -1
    world.stores[1]._wait_s = 0.05
    with pytest.raises(StoreUnavailable, match="no leader"):
        await world.stores[1].schedule("line", [new(2)])


async def test_a_damaged_index_is_built_again_from_the_journal(world: JournalWorld, tmp_path: Path) -> None:
    await world.stores[1].schedule("line", [new(number) for number in range(12)])
    await world.stop(2)
    files = sorted((tmp_path / "broker2").glob("*.db"))
    assert len(files) == PARTITIONS
    for path in files:
        path.write_bytes(b"damaged" * 1_000)
    store = await world.start(2)
    for log in world.logs:
        log.lead(2)
    assert len(await store.find("line", now_ms=NOW, limit=100)) == 12


async def test_a_frame_that_is_no_call_is_answered_with_an_error(world: JournalWorld) -> None:
    for frame in (b"", b"\xff" * 10, b"\0\0\0\x02[]", b'\0\0\0\x0b[0,"explode"'):
        assert b"StoreCorrupt" in await world.stores[1].answers.answer(frame)
