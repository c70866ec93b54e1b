"""A coordination journal that lost changes: no record is deleted without a recorded deletion."""

from pathlib import Path

import pytest
from tests.support.broker_worlds import batch_of, running

from tidemill.broker.health import notes_of
from tidemill.cluster.core.image import TOPICS
from tidemill.cluster.journal import COPY, JOURNAL, JournalDamaged
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model.topics import GROUP_OFFSETS

RECORDS = 5


async def _filled(folder: Path, *names: str) -> None:
    async with running(folder) as broker:
        for name in names:
            await broker.topics.create(name)
            for _ in range(RECORDS):
                await broker.view.partition(name, 0).leader.append(batch_of(b"kept"), acks=-1)


def _without(folder: Path, name: str) -> None:
    """Take the topic out of the journal, as a version without a copy could lose it."""
    (folder / COPY).unlink()
    lines = (folder / JOURNAL).read_bytes().splitlines(keepends=True)
    (folder / JOURNAL).write_bytes(b"".join(line for line in lines if f"{TOPICS}{name}".encode() not in line))


async def test_a_topic_created_over_an_unknown_folder_keeps_its_records_aside(tmp_path: Path) -> None:
    await _filled(tmp_path, "orders")
    log = (tmp_path / "streams" / "orders" / "0" / f"{0:020d}.log").read_bytes()
    assert log
    _without(tmp_path, "orders")
    async with running(tmp_path) as broker:
        [note] = notes_of(broker.partitions, broker.view.image)
        assert "orders" in note
        await broker.topics.create("orders")
        assert broker.view.partition("orders", 0).log_end_offset == 0
        assert notes_of(broker.partitions, broker.view.image) == []
    [kept] = (tmp_path / "orphans").rglob("*.log")
    assert kept.read_bytes() == log


async def test_a_deletion_removes_only_the_folder_of_its_own_topic(tmp_path: Path) -> None:
    await _filled(tmp_path, "orders")
    async with running(tmp_path) as broker:
        await broker.partitions.store.remove("orders", "another-id")
    assert list((tmp_path / "streams" / "orders" / "0").glob("*.log"))


async def test_internal_topics_are_found_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        await broker.groups.commit("g", [OffsetCommit("orders", 0, 7)])
        created = broker.view.image.by_name[GROUP_OFFSETS]
    _without(tmp_path, GROUP_OFFSETS)
    async with running(tmp_path) as broker:
        found = broker.view.image.by_name[GROUP_OFFSETS]
        assert (found.topic_id, len(found.partitions)) == (created.topic_id, len(created.partitions))
        assert [each.offset for each in broker.groups.fetch("g", None)] == [7]
        assert notes_of(broker.partitions, broker.view.image) == []
    assert not (tmp_path / "orphans").exists()


@pytest.mark.parametrize("lost", [5, 40])
async def test_the_end_of_the_last_line_is_not_missed(tmp_path: Path, lost: int) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders")
        await broker.groups.commit("g", [OffsetCommit("orders", 0, 7)])
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole[:-lost])
    async with running(tmp_path) as broker:
        assert [each.offset for each in broker.groups.fetch("g", None)] == [7]
    assert (tmp_path / JOURNAL).read_bytes().startswith(whole)


async def test_a_journal_cut_in_the_middle_stops_the_start(tmp_path: Path) -> None:
    await _filled(tmp_path, *(f"topic-{number}" for number in range(4)))
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(JournalDamaged, match="tidemill repair --data-dir"):
        async with running(tmp_path):
            pass
    assert len(list((tmp_path / "streams").glob("*/0/*.log"))) == 4
