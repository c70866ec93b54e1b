"""Local coordination: acknowledged writes are there after any crash."""

import asyncio
import os
from pathlib import Path

import pytest

from tidemill.cluster import local
from tidemill.cluster.interface import Changed, VersionedValue, WatchGap
from tidemill.cluster.journal import COPY, JOURNAL, JournalDamaged
from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import KafkaStorageError

WAIT_S = 30


async def test_compare_and_put(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    assert await store.get("a") is None
    first = await store.compare_and_put("a", b"1", 0)
    assert first is not None
    assert await store.compare_and_put("a", b"2", 0) is None
    assert await store.compare_and_put("b", b"2", first) is None
    assert await store.get("a") == VersionedValue(b"1", first)
    second = await store.compare_and_put("a", b"2", first)
    assert second is not None
    assert second > first
    listing = await store.get_prefix("a")
    assert listing.entries == {"a": VersionedValue(b"2", second)}
    assert await store.compare_and_put("a", None, second) is not None
    assert await store.get("a") is None
    await store.close()
    with pytest.raises(KafkaStorageError):
        await store.compare_and_put("c", b"1", 0)


async def test_only_one_of_many_wins(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    results = await asyncio.gather(*(store.compare_and_put("leader", b"%d" % each, 0) for each in range(20)))
    assert sum(result is not None for result in results) == 1
    await store.close()


async def test_a_cancelled_write_is_whole(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    task = asyncio.create_task(store.compare_and_put("a", b"1", 0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    entry = await store.get("b")
    await store.compare_and_put("b", b"2", entry.revision if entry else 0)
    await store.close()
    again = await LocalCoordination.open(tmp_path)
    assert (await again.get_prefix("")).entries == (await store.get_prefix("")).entries
    await again.close()


async def test_any_values_survive_a_restart(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    values = {"a": b"\xff\x00\n\r", "topics/ü": "grüße".encode(), "empty": b""}
    for key, value in values.items():
        await store.compare_and_put(key, value, 0)
    before = await store.get_prefix("")
    await store.close()
    again = await LocalCoordination.open(tmp_path)
    assert await again.get_prefix("") == before
    assert {key: entry.value for key, entry in before.entries.items()} == values
    await again.close()


async def three_changes(directory: Path) -> tuple[bytes, list[int]]:
    """A journal of three changes, and where its lines end."""
    store = await LocalCoordination.open(directory)
    for number in range(3):
        entry = await store.get("n")
        await store.compare_and_put("n", b"%d" % number, entry.revision if entry else 0)
    await store.close()
    whole = (directory / JOURNAL).read_bytes()
    return whole, [0, *(position + 1 for position, byte in enumerate(whole) if byte == ord("\n"))]


async def test_a_journal_without_a_copy_that_is_cut_anywhere_is_a_prefix(tmp_path: Path) -> None:
    """As older versions left it."""
    whole, ends = await three_changes(tmp_path)
    for cut in range(len(whole) + 1):
        (tmp_path / JOURNAL).write_bytes(whole[:cut])
        (tmp_path / COPY).unlink(missing_ok=True)
        again = await LocalCoordination.open(tmp_path)
        complete = sum(end <= cut for end in ends) - 1
        entry = await again.get("n")
        assert (entry.value if entry else None) == (b"%d" % (complete - 1) if complete else None)
        assert await again.compare_and_put("after", b"cut", 0) is not None
        await again.close()
        assert (tmp_path / JOURNAL).read_bytes().startswith(whole[: ends[complete]])
        assert (tmp_path / COPY).read_bytes() == (tmp_path / JOURNAL).read_bytes()


async def test_a_journal_cut_in_its_last_line_loses_nothing_and_one_cut_before_stops_the_start(tmp_path: Path) -> None:
    whole, ends = await three_changes(tmp_path)
    for cut in range(len(whole) + 1):
        (tmp_path / JOURNAL).write_bytes(whole[:cut])
        (tmp_path / COPY).write_bytes(whole)
        if cut < ends[2]:
            with pytest.raises(JournalDamaged, match=r"acknowledged changes before its copy.*tidemill repair"):
                await LocalCoordination.open(tmp_path)
            assert (tmp_path / JOURNAL).read_bytes() == whole[:cut], "the start changed it"
            assert (tmp_path / COPY).read_bytes() == whole
            continue
        again = await LocalCoordination.open(tmp_path)
        entry = await again.get("n")
        assert entry is not None
        assert entry.value == b"2"
        await again.close()
        assert (tmp_path / JOURNAL).read_bytes() == whole


async def test_a_damaged_copy_is_written_again(tmp_path: Path) -> None:
    whole, _ = await three_changes(tmp_path)
    for damaged in (b"", whole[:10], b"x\n" + whole, whole[:30] + b"?" + whole[31:]):
        (tmp_path / COPY).write_bytes(damaged)
        again = await LocalCoordination.open(tmp_path)
        entry = await again.get("n")
        assert entry is not None
        assert entry.value == b"2"
        await again.close()
        assert (tmp_path / COPY).read_bytes() == whole


async def test_a_crash_at_every_write_is_not_taken_for_damage(tmp_path: Path) -> None:
    """Each file may have any part of the last line, since neither was flushed."""
    whole, ends = await three_changes(tmp_path)
    for journal in range(ends[2], len(whole) + 1):
        for copy in range(ends[2], len(whole) + 1, 7):
            (tmp_path / JOURNAL).write_bytes(whole[:journal])
            (tmp_path / COPY).write_bytes(whole[:copy])
            again = await LocalCoordination.open(tmp_path)
            entry = await again.get("n")
            assert entry is not None
            assert entry.value in {b"1", b"2"}
            await again.close()


async def test_a_crash_between_the_two_renames_of_a_rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = await three_changes(tmp_path)
    monkeypatch.setattr(local, "REWRITE_LINES_MIN", 1)
    monkeypatch.setattr(local, "REWRITE_SHARE", 1)
    store = await LocalCoordination.open(tmp_path)
    before = await store.get_prefix("")
    await store.close()
    assert len((tmp_path / COPY).read_bytes()) < len(whole)
    (tmp_path / JOURNAL).write_bytes(whole)
    again = await LocalCoordination.open(tmp_path)
    assert await again.get_prefix("") == before
    await again.close()


async def test_damage_before_good_lines_is_refused(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    await store.compare_and_put("a", b"1", 0)
    await store.compare_and_put("b", b"1", 0)
    await store.close()
    journal = bytearray((tmp_path / JOURNAL).read_bytes())
    journal[12] ^= 1
    (tmp_path / JOURNAL).write_bytes(journal)
    for damaged in (bytes(journal), b"garbage\nof several lines\n", b"\0" * 100 + b"\n" + bytes(journal)):
        (tmp_path / JOURNAL).write_bytes(damaged)
        with pytest.raises(KafkaStorageError, match="damaged at byte 0"):
            await LocalCoordination.open(tmp_path)
        assert (tmp_path / JOURNAL).read_bytes() == damaged


async def test_history_is_left_out_when_it_is_most_of_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "REWRITE_LINES_MIN", 5)

    store = await LocalCoordination.open(tmp_path)
    revision = 0
    for number in range(20):
        revision = await store.compare_and_put("n", b"%d" % number, revision) or 0
    gone = await store.compare_and_put("gone", b"", 0)
    await store.compare_and_put("gone", None, gone or 0)
    before = await store.get_prefix("")
    await store.close()
    again = await LocalCoordination.open(tmp_path)
    assert await again.get_prefix("") == before
    assert (tmp_path / JOURNAL).read_bytes().count(b"\n") == 2
    await again.close()
    third = await LocalCoordination.open(tmp_path)
    assert await third.get_prefix("") == before
    await third.close()


async def test_a_watch_misses_nothing(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    await store.compare_and_put("x/1", b"a", 0)
    watch = store.watch("x/", 0)

    async def three() -> list[Changed]:
        return [await anext(watch) for _ in range(3)]

    task = asyncio.create_task(three())
    await store.compare_and_put("y/1", b"other", 0)
    second = await store.compare_and_put("x/2", b"b", 0)
    await store.compare_and_put("x/2", None, second or 0)
    seen = await asyncio.wait_for(task, WAIT_S)
    assert [(change.key, change.value) for change in seen] == [("x/1", b"a"), ("x/2", b"b"), ("x/2", None)]
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(watch), WAIT_S)


async def test_a_watch_from_before_the_history_says_so(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    await store.compare_and_put("a", b"", 0)
    await store.compare_and_put("b", b"", 0)
    await store.close()
    again = await LocalCoordination.open(tmp_path)
    await again.compare_and_put("c", b"", 0)
    with pytest.raises(WatchGap):
        await anext(again.watch("", 0))
    assert (await anext(again.watch("", 2))).key == "c"
    await again.close()


async def test_keys_of_a_session_end_with_it(tmp_path: Path) -> None:
    store = await LocalCoordination.open(tmp_path)
    async with store.session(10_000) as session:
        states = [session.alive]
        await store.compare_and_put("brokers/0", b"here", 0, session=session)
        assert await store.get("brokers/0") is not None
    assert [*states, session.alive] == [True, False]
    assert await store.get("brokers/0") is None
    await store.close()
    again = await LocalCoordination.open(tmp_path)
    assert await again.get("brokers/0") is None
    await again.close()


async def test_a_failed_flush_ends_all_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    store = await LocalCoordination.open(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.fdatasync", full)
        with pytest.raises(KafkaStorageError, match="No space left"):
            await store.compare_and_put("a", b"1", 0)
    assert await store.get("a") is None
    with pytest.raises(KafkaStorageError):
        await store.compare_and_put("a", b"1", 0)
    await store.close()


@pytest.mark.parametrize("room", [0, 5])
async def test_a_write_without_room_is_cut_back_and_the_next_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    real = os.write

    def full(file: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return real(file, data[:room])

    keys = await LocalCoordination.open(tmp_path)
    assert await keys.compare_and_put("a", b"1", 0)
    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(KafkaStorageError, match="free disk space and try again"):
            await keys.compare_and_put("b", b"2", 0)
    assert await keys.get("b") is None
    assert await keys.compare_and_put("b", b"3", 0)
    await keys.close()
    again = await LocalCoordination.open(tmp_path)
    found = await again.get_prefix("")
    assert {key: entry.value for key, entry in found.entries.items()} == {"a": b"1", "b": b"3"}
    await again.close()
