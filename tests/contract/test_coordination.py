"""What every coordination does: local and etcd answer one and the same suite."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from tests.support.etcd import Etcd

from tidemill.cluster.etcd import EtcdCoordination
from tidemill.cluster.etcd.date import date_of
from tidemill.cluster.interface import (
    Changed,
    ClockReading,
    Coordination,
    CoordinationSession,
    KeyGuard,
    VersionedValue,
)
from tidemill.cluster.local import LocalCoordination

WAIT_S = 30
TTL_MS = 60_000
MINUTE_MS = 60_000


@pytest.fixture(params=["local", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Coordination]:
    """A coordination that holds nothing."""
    url = request.getfixturevalue("etcd").new_folder() if request.param == "etcd" else ""
    opened: Coordination = EtcdCoordination(url) if url else await LocalCoordination.open(tmp_path)
    try:
        yield opened
    finally:
        await opened.close()


async def put(store: Coordination, key: str, value: bytes | None, revision: int = 0) -> int:
    written = await store.compare_and_put(key, value, revision)
    assert written is not None
    return written


async def take(changes: AsyncIterator[Changed], number: int) -> list[Changed]:
    return [await anext(changes) for _ in range(number)]


def over(session: CoordinationSession) -> bool:
    return not session.alive


async def test_a_write_counts_only_on_the_revision_it_names(store: Coordination) -> None:
    assert await store.get("a") is None
    first = await put(store, "a", b"1")
    assert await store.compare_and_put("a", b"2", 0) is None
    assert await store.compare_and_put("b", b"2", first) is None
    assert await store.get("a") == VersionedValue(b"1", first)
    second = await put(store, "a", b"2", first)
    assert second > first
    third = await put(store, "a", None, second)
    assert third > second
    assert await store.get("a") is None
    assert await put(store, "a", b"", 0) > third
    assert await store.get("a") is not None


async def test_one_of_many_wins(store: Coordination) -> None:
    results = await asyncio.gather(*(store.compare_and_put("leader", b"%d" % each, 0) for each in range(20)))
    assert sum(result is not None for result in results) == 1


async def test_a_prefix_is_listed_at_one_revision(store: Coordination) -> None:
    await put(store, "topics/b", b"2")
    last = await put(store, "topics/a", b"1")
    await put(store, "topic", b"x")
    listing = await store.get_prefix("topics/")
    assert {key: entry.value for key, entry in listing.entries.items()} == {"topics/a": b"1", "topics/b": b"2"}
    assert listing.entries["topics/a"].revision == last
    assert listing.revision >= last
    assert set((await store.get_prefix("")).entries) == {"topics/a", "topics/b", "topic"}


async def test_a_watch_begins_right_behind_a_listing(store: Coordination) -> None:
    first = await put(store, "topics/a", b"1")
    listing = await store.get_prefix("topics/")
    await put(store, "other", b"x")
    second = await put(store, "topics/a", b"2", first)
    third = await put(store, "topics/b", b"3")
    fourth = await put(store, "topics/a", None, second)
    changes = store.watch("topics/", listing.revision)
    assert await take(changes, 3) == [
        Changed("topics/a", b"2", second),
        Changed("topics/b", b"3", third),
        Changed("topics/a", None, fourth),
    ]
    late = asyncio.ensure_future(anext(changes))
    fifth = await put(store, "topics/c", b"5")
    assert await late == Changed("topics/c", b"5", fifth)


async def test_two_watches_see_the_same(store: Coordination) -> None:
    start = (await store.get_prefix("")).revision
    watches = [store.watch("", start) for _ in range(2)]
    reading = [asyncio.ensure_future(take(watch, 50)) for watch in watches]
    for number in range(50):
        await put(store, f"key{number}", b"%d" % number)
    first, second = await asyncio.gather(*reading)
    assert first == second
    assert [change.value for change in first] == [b"%d" % number for number in range(50)]


async def test_a_session_takes_its_keys_along(store: Coordination) -> None:
    kept = await put(store, "kept", b"1")
    async with store.session(TTL_MS) as session:
        assert session.alive
        written = await store.compare_and_put("brokers/1", b"here", 0, session=session)
        assert written is not None
        assert await store.get("brokers/1") == VersionedValue(b"here", written)
        changes = store.watch("brokers/", written)
    assert over(session)
    await session.ended()
    gone = await anext(changes)
    assert (gone.key, gone.value) == ("brokers/1", None)
    assert gone.revision > written
    assert await store.get("brokers/1") is None
    assert await store.get("kept") == VersionedValue(b"1", kept)


async def test_a_guard_rejects_the_writer_that_lost_the_key(store: Coordination) -> None:
    mine = await put(store, "controller", b"1")
    guard = KeyGuard("controller", mine)
    first = await store.compare_and_put("state", b"a", 0, guard=guard)
    assert first is not None
    theirs = await put(store, "controller", b"2", mine)
    assert await store.compare_and_put("state", b"b", first, guard=guard) is None
    assert await store.get("state") == VersionedValue(b"a", first)
    assert await store.compare_and_put("state", b"c", first, guard=KeyGuard("controller", theirs)) is not None


async def test_any_value_comes_back(store: Coordination) -> None:
    for number, value in zip(count(), (b"", b"\xff\x00\n\r", "grüße".encode(), b"x" * 100_000), strict=False):
        key = f"values/ü{number}"
        assert await store.get(key) is None
        revision = await put(store, key, value)
        assert await store.get(key) == VersionedValue(value, revision)


async def test_an_acknowledged_write_is_read_after_a_restart(tmp_path: Path, etcd: Etcd) -> None:
    url = etcd.new_folder()

    async def write_and_read(open_one: Callable[[], AbstractAsyncContextManager[Coordination]]) -> None:
        async with open_one() as store:
            revision = await put(store, "a", b"1")
        async with open_one() as again:
            assert await again.get("a") == VersionedValue(b"1", revision)
            assert await put(again, "b", b"2") > revision

    @asynccontextmanager
    async def local() -> AsyncIterator[Coordination]:
        store = await LocalCoordination.open(tmp_path)
        yield store
        await store.close()

    @asynccontextmanager
    async def on_etcd() -> AsyncIterator[Coordination]:
        store = EtcdCoordination(url)
        yield store
        await store.close()

    await write_and_read(local)
    await write_and_read(on_etcd)


async def test_the_clock_of_etcd_is_read(etcd: Etcd) -> None:
    store = EtcdCoordination(etcd.new_folder())
    try:
        reading = await store.clock()
    finally:
        await store.close()
    assert reading is not None
    assert abs(reading.ms - time.time() * 1000) < MINUTE_MS  # both run on this machine
    assert reading.error_ms == 500


def test_a_head_without_a_date_says_nothing() -> None:
    assert date_of(b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n") is None
    assert date_of(b"HTTP/1.1 200 OK\r\nDate: yesterday\r\n\r\n") is None
    assert date_of(b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:02 GMT\r\n\r\n") == ClockReading(2_500, 500)
