"""Rows that the engine expires by itself, also while no broker runs. The next broker must still know their offsets."""

import time
from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest
from tests.contract.test_stream_log import NOW, World, batch, embedded
from tests.support.waiting import eventually_async

from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import parse
from tidemill.streams.clickhouse import BrokerRun, ClickHouseStore
from tidemill.streams.clickhouse.rows import EXPIRES_MAX_S, EXPIRES_UNKNOWN_S, BatchRows
from tidemill.streams.maintenance import MaintenanceTasks
from tidemill.streams.partition import Partition

RETENTION_MS = 60_000
DAY_MS = 86_400_000
WAIT_S = 20
ANY_TIME = {"message_timestamp_after_max_ms": str(60 * DAY_MS)}


async def opened(now_ms: int = NOW, **overrides: str) -> tuple[World, Partition]:
    """A broker that knows nothing but what is in the tables, and its log."""
    world = World(ClickHouseStore(embedded(), lambda: now_ms, BrokerRun("0", uuid4().hex)))
    world.now_ms = now_ms
    return world, await world.open(0, **overrides)


async def expire() -> None:
    """What the engine does when the time of all rows is over."""
    await embedded().command("DELETE FROM messages WHERE topic = 'orders'", server=0)


async def expiry() -> set[int]:
    found = await embedded().query(
        "SELECT DISTINCT toUnixTimestamp(expires_at) AS at FROM messages WHERE topic = 'orders'", server=0
    )
    return set(found["at"].to_pylist())


@pytest.fixture(autouse=True)
async def _no_topic() -> None:
    await ClickHouseStore(embedded(), lambda: NOW, BrokerRun("0", uuid4().hex)).remove_topic("orders")


async def test_offsets_of_rows_that_expired_while_no_broker_ran_are_not_assigned_again() -> None:
    _, log = await opened(retention_ms=str(RETENTION_MS))
    for value in (b"a", b"b", b"c"):
        await log.leader.append(batch(value), acks=-1)
    given = 3
    for life in (1, 2):
        await expire()
        now_ms = NOW + life * (RETENTION_MS + 1000)
        _, log = await opened(now_ms, retention_ms=str(RETENTION_MS))
        end_offset = log.log_end_offset
        assert log.log_start_offset == end_offset >= given
        assert (await log.leader.append(batch(b"d"), acks=-1)).base_offset == end_offset
        await log.leader.append(batch(b"e"), acks=-1)
        given = end_offset + 2
        _, again = await opened(now_ms, retention_ms=str(RETENTION_MS))
        assert (again.log_start_offset, again.log_end_offset) == (end_offset, given)


async def test_a_failed_append_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Sequence[BatchRows]) -> None:
        raise KafkaStorageError("no room")

    world, log = await opened(retention_ms=str(RETENTION_MS))
    assert isinstance(world.store, ClickHouseStore)
    monkeypatch.setattr(world.store._shared[0].committer, "store", fail)
    with pytest.raises(KafkaStorageError):
        await log.leader.append(batch(b"refused"), acks=-1)
    _, log = await opened(retention_ms=str(RETENTION_MS))
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    await log.leader.append(batch(b"a", b"b"), acks=-1)
    await log.close()
    await expire()
    _, log = await opened(NOW + 10 * RETENTION_MS, retention_ms=str(RETENTION_MS))
    assert log.log_end_offset == 2, "a log that was closed knows its end"


@pytest.mark.parametrize("killed", [False, True])
async def test_rows_of_a_topic_that_is_compacted_from_now_on_do_not_expire(killed: bool) -> None:
    async def expires_earlier() -> bool:
        return EXPIRES_MAX_S not in await expiry()

    world, log = await opened(retention_ms=str(RETENTION_MS))
    await log.leader.append(batch(b"a"), acks=-1)
    assert EXPIRES_MAX_S not in await expiry()
    if killed:
        world, log = await opened(cleanup_policy="compact")
    else:
        log.apply_settings(parse({"cleanup.policy": "compact"}))
    await log.leader.append(batch(b"b"), acks=-1)
    await log.maintain(world.now_ms)
    await expires_at(EXPIRES_MAX_S)
    log.apply_settings(parse({"retention.ms": str(RETENTION_MS)}))
    await log.leader.append(batch(b"c"), acks=-1)
    assert await expiry() == {EXPIRES_MAX_S}, "of two rows the newer one never expires first"
    await log.maintain(world.now_ms)
    await eventually_async(expires_earlier)
    await log.close()


async def expires_at(second: int) -> None:
    """Wait for the engine, which changes rows in the background."""

    async def reached() -> bool:
        return await expiry() == {second}

    await eventually_async(reached)


def store_in_doubt(now_ms: int, trusted: Callable[[], bool]) -> World:
    world = World(ClickHouseStore(embedded(), lambda: now_ms, BrokerRun("0", uuid4().hex), is_clock_trusted=trusted))
    world.now_ms = now_ms
    return world


@pytest.mark.parametrize("wrong_by_ms", [-30 * DAY_MS, 30 * DAY_MS])
@pytest.mark.parametrize("restarted", [False, True])
async def test_rows_that_come_while_the_clock_is_in_doubt_count_from_its_end(wrong_by_ms: int, restarted: bool) -> None:
    is_trusted = False
    world = store_in_doubt(NOW + wrong_by_ms, lambda: is_trusted)
    log = await world.open(0, retention_ms=str(RETENTION_MS), **ANY_TIME)
    await log.leader.append(batch(b"a"), acks=-1)
    assert await expiry() == {EXPIRES_UNKNOWN_S}
    if restarted:
        world = store_in_doubt(NOW + wrong_by_ms, lambda: is_trusted)
        log = await world.open(0, retention_ms=str(RETENTION_MS), **ANY_TIME)
    await log.maintain(world.now_ms, tasks=MaintenanceTasks(by_time=False))
    is_trusted = True
    await log.leader.append(batch(b"b"), acks=-1)
    assert await expiry() == {EXPIRES_UNKNOWN_S}, "of two rows the newer one never expires first"
    await log.maintain(NOW, tasks=MaintenanceTasks(retain=False))
    await expires_at((NOW + RETENTION_MS) // 1000 + 1)


async def test_a_changed_retention_does_not_take_the_wrong_time_of_a_row() -> None:
    world = store_in_doubt(NOW - 30 * DAY_MS, lambda: False)
    log = await world.open(0, retention_ms="-1", **ANY_TIME)
    await log.leader.append(batch(b"a"), acks=-1)
    log.apply_settings(parse({"retention.ms": str(RETENTION_MS)}))
    await log.maintain(NOW, tasks=MaintenanceTasks(retain=False))
    await expires_at((NOW + RETENTION_MS) // 1000 + 1)


async def test_offsets_are_not_given_again_by_a_broker_whose_clock_is_behind() -> None:
    _, log = await opened(retention_ms=str(RETENTION_MS))
    await log.leader.append(batch(b"a"), acks=-1)
    await expire()
    log = await store_in_doubt(NOW - 30 * DAY_MS, lambda: False).open(0, retention_ms=str(RETENTION_MS))
    assert log.log_end_offset >= 1


async def test_the_embedded_engine_deletes_no_row_by_its_own_clock() -> None:
    long_ago_ms = time.time_ns() // 1_000_000 - 30 * DAY_MS
    any_time = {"message_timestamp_after_max_ms": str(2**62)}
    _, log = await opened(long_ago_ms, retention_ms=str(RETENTION_MS), **any_time)
    await log.leader.append(batch(b"old by the clock of the machine"), acks=-1)
    assert max(await expiry()) * 1000 < time.time_ns() // 1_000_000
    await embedded().command("OPTIMIZE TABLE messages FINAL", server=0)
    assert await expiry() != set(), "the row is there: the clock may be wrong"
