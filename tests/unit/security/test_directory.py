"""The directory: every change of the prefix arrives, a writer sees its own write, and old changes undo nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import eventually_async

from tidemill.cluster.interface import Changed, PrefixListing, WatchGap
from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import RequestTimedOut, TidemillError
from tidemill.security.directory import TRIES_MAX, Directory, DirectoryChanges
from tidemill.supervision.supervisor import Supervisor

PREFIX = "security/users/"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalCoordination]:
    opened = await LocalCoordination.open(tmp_path)
    yield opened
    await opened.close()


async def test_a_directory_starts_with_the_stored_values(store: LocalCoordination) -> None:
    await store.compare_and_put(PREFIX + "alice", b"1", 0)
    await store.compare_and_put("security/acls/x", b"2", 0)
    heard: list[DirectoryChanges] = []
    directory = Directory(store, PREFIX, heard.append)
    await directory.start(Supervisor())
    assert dict(directory.values) == {"alice": b"1"}
    assert heard == [{"alice": b"1"}]
    await directory.stop()


async def test_follows_changes_of_others(store: LocalCoordination) -> None:
    heard: list[DirectoryChanges] = []
    mine, other = Directory(store, PREFIX, heard.append), Directory(store, PREFIX)
    await mine.start(Supervisor())
    await other.put("bob", b"1")
    await eventually_async(lambda: mine.get("bob") == b"1")
    assert await other.delete("bob")
    assert not await other.delete("bob")
    await eventually_async(lambda: mine.get("bob") is None)
    assert heard == [{"bob": b"1"}, {"bob": None}]
    await mine.stop()


async def test_writer_sees_its_write_once(store: LocalCoordination) -> None:
    heard: list[DirectoryChanges] = []
    directory = Directory(store, PREFIX, heard.append)
    await directory.start(Supervisor())
    await directory.put("alice", b"1")
    assert directory.get("alice") == b"1"
    await directory.put("alice", b"1")
    await directory.delete("alice")
    assert directory.get("alice") is None
    await directory.put("end", b"")
    await asyncio.sleep(0.05)
    assert heard == [{"alice": b"1"}, {"alice": None}, {"end": b""}]
    await directory.stop()


@pytest.mark.parametrize("name", ["a/b", "", "ü %2F", "..", "\x00", "User:x,client"])
async def test_any_name(store: LocalCoordination, name: str) -> None:
    mine, other = Directory(store, PREFIX), Directory(store, PREFIX)
    await mine.put(name, b"v")
    await other.load()
    assert dict(other.values) == {name: b"v"}


async def test_concurrent_updates_all_count(store: LocalCoordination) -> None:
    directories = [Directory(store, PREFIX) for _ in range(8)]
    await asyncio.gather(*(each.update("n", lambda old: (old or b"") + b"x") for each in directories))
    found = await store.get(PREFIX + "n")
    assert found is not None
    assert found.value == b"x" * 8


async def test_edit_may_refuse(store: LocalCoordination) -> None:
    directory = Directory(store, PREFIX)

    def refuse(_: bytes | None) -> bytes:
        raise TidemillError("no")

    with pytest.raises(TidemillError, match="no"):
        await directory.update("n", refuse)
    assert await store.get(PREFIX + "n") is None


class Scripted:
    """A store whose watch yields what the test says."""

    def __init__(self) -> None:
        self.listings: list[PrefixListing | TidemillError] = []
        self.watches: list[list[Changed | TidemillError]] = []
        self.started_after: list[int] = []
        self.revision = 10
        self.is_busy = False

    async def get(self, key: str) -> None:
        return None

    async def get_prefix(self, prefix: str) -> PrefixListing:
        listing = self.listings.pop(0)
        if isinstance(listing, TidemillError):
            raise listing
        return listing

    async def compare_and_put(self, key: str, value: bytes | None, revision: int) -> int | None:
        return None if self.is_busy else self.revision

    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        self.started_after.append(after_revision)
        for each in self.watches.pop(0) if self.watches else []:
            if isinstance(each, TidemillError):
                raise each
            yield each


async def test_older_changes_of_the_watch_undo_nothing() -> None:
    store = Scripted()
    store.listings = [PrefixListing({}, 5)]
    directory = Directory(store, PREFIX)
    await directory.load()
    await directory.put("a", b"new")
    store.watches = [[Changed(PREFIX + "a", b"old", 7), Changed(PREFIX + "a", None, 8)]]
    await directory._follow()
    assert directory.get("a") == b"new"
    store.watches = [[Changed(PREFIX + "a", b"newer", 11)]]
    store.listings = [PrefixListing({}, 9)]  # a listing from before the write
    await directory._follow()
    assert directory.get("a") == b"newer"


async def test_gap_lists_again() -> None:
    store = Scripted()
    store.listings = [PrefixListing({}, 5), WatchGap(), PrefixListing({}, 20)]
    store.watches = [[Changed(PREFIX + "a", b"1", 6), WatchGap()]]
    directory = Directory(store, PREFIX)
    await directory.start(Supervisor())
    await eventually_async(lambda: store.started_after == [5, 20])
    assert directory.get("a") is None
    await directory.stop()


async def test_busy_key_is_a_retriable_error() -> None:
    store = Scripted()
    store.is_busy = True
    calls = 0

    def edit(_: bytes | None) -> bytes:
        nonlocal calls
        calls += 1
        return b"v"

    with pytest.raises(RequestTimedOut, match="try again"):
        await Directory(store, PREFIX).update("a", edit)
    assert calls == TRIES_MAX
