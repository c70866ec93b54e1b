"""Segments that were removed or cut while the broker was stopped: reported, and no offset is given out again."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from tests.simulation.test_log_crash import SETTINGS, STEPS, History, step
from tests.simulation.test_log_crash import open_log as open_one
from tests.simulation.test_log_crash_faults import BATCHES, batch, filled, open_log, read_all

from tidemill.model.errors import KafkaError
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.streams.opener import opener
from tidemill.streams.reservation import RESERVED_OFFSETS
from tidemill.streams.segments import SegmentLog, SegmentStore
from tidemill.streams.segments.missing import Missing
from tidemill.testing.faults import SimDisk


def _segments(disk: SimDisk) -> list[str]:
    return [f"t/0/{name}" for name in disk.list("t/0") if name.endswith(".log")]


def _empty(disk: SimDisk, path: str) -> None:
    file = disk.open(path)
    disk.truncate(file, 0)
    disk.close(file)


def _remove(disk: SimDisk, chosen: slice) -> None:
    for path in _segments(disk)[chosen]:
        disk.remove(path)


DAMAGES: dict[str, Callable[[SimDisk], None]] = {
    "the first segment is removed": lambda disk: _remove(disk, slice(1)),
    "a middle segment is removed": lambda disk: _remove(disk, slice(1, 2)),
    "two middle segments are removed": lambda disk: _remove(disk, slice(1, 3)),
    "the last segment is removed": lambda disk: _remove(disk, slice(-1, None)),
    "the last three segments are removed": lambda disk: _remove(disk, slice(-3, None)),
    "all segments are removed": lambda disk: _remove(disk, slice(None)),
    "the active segment is emptied": lambda disk: _empty(disk, _segments(disk)[-1]),
    "a closed segment is emptied": lambda disk: _empty(disk, _segments(disk)[1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_missing_segment_is_reported_and_the_other_records_are_read(damage: str) -> None:
    disk = SimDisk(Random(1))
    original = await filled(disk)
    log = await open_log(disk)
    await log.close()
    offsets = {path: [header.base_offset for _, header in iter_headers(disk.content(path))] for path in _segments(disk)}
    DAMAGES[damage](disk)
    kept = {path for path in _segments(disk) if disk.size(path)}
    log = await open_log(disk)
    assert isinstance(log._log, SegmentLog)
    assert len(log._log.report.missing) == len(offsets) - len(kept), log._log.report.missing
    assert log.log_end_offset == BATCHES, "an acknowledged offset would be given out again"
    assert (await log.leader.append(batch(BATCHES), acks=-1)).base_offset == BATCHES
    found, refused = await read_all(log)
    assert refused == 0
    assert found.pop(BATCHES)
    assert found == {offset: original[offset] for path in kept for offset in offsets[path]}
    await log.close()
    log = await open_log(disk)
    assert isinstance(log._log, SegmentLog)
    assert log._log.report.missing == (), "what was reported is not reported again"
    assert log.log_end_offset == BATCHES + 1
    await log.close()


def _last_with_records(disk: SimDisk) -> list[str]:
    return [path for path in _segments(disk) if disk.content(path).strip(b"\0")][-1:]


def _remove_last(disk: SimDisk) -> None:
    for path in _last_with_records(disk):
        disk.remove(path)


def _remove_checkpoint_and_last(disk: SimDisk) -> None:
    _remove_last(disk)
    if "checkpoint" in disk.list("t/0"):
        disk.remove("t/0/checkpoint")


def _remove_segments(disk: SimDisk) -> None:
    _remove(disk, slice(None))


REMOVALS: dict[str, Callable[[SimDisk], None]] = {
    "the last segment": _remove_last,
    "the checkpoint and the last segment": _remove_checkpoint_and_last,
    "all segments": _remove_segments,
}


async def _crashed(seed: int, fail_at: int) -> tuple[SimDisk, History, list[int], int]:
    """A history that ends with operation `fail_at` of the disk, and the bound of offsets that was durable then."""
    random, clock, history, bound = Random(seed), [1_000_000_000_000], History(), [0]
    disk = SimDisk(Random(seed + fail_at), fail_at=fail_at)

    async def record(offset: int) -> int:
        bound[0] = offset
        return offset

    with suppress(OSError):
        log = await open_one(disk, clock)
        log.reserve(0, record)
        for _ in range(STEPS):
            with suppress(KafkaError):
                await step(log, random, history, clock)
    return disk, history, clock, bound[0]


async def _next_offset(disk: SimDisk, clock: list[int], bound: int) -> tuple[int, tuple[Missing, ...]]:
    log = await opener(SegmentStore(disk), lambda: clock[0])("t", 0, SETTINGS, 0, given_offset=bound)
    missing = log._log.report.missing  # type: ignore[attr-defined]
    new = build_batch([NewRecord(b"new", b"new", (), clock[0])])
    offset = (await log.leader.append(new, acks=-1)).base_offset
    assert (await log.reader.read(log.log_start_offset, 100)).records, "what is left is not served"
    await log.close()
    return offset, missing


@pytest.mark.parametrize("power", [True, False], ids=["power-cut", "kill"])
@pytest.mark.parametrize("seed", [1, pytest.param(4, marks=pytest.mark.long)])
async def test_files_removed_after_a_crash_give_no_offset_out_again(seed: int, power: bool) -> None:
    """Whatever operation of the disk the crash stops: no false alarm with all files, no reuse without some of them."""

    async def run() -> tuple[int, int]:
        fail_at, noticed = 0, 0
        while True:
            disk, history, clock, bound = await _crashed(seed, fail_at)
            limit = min(history.promised_end, history.cut_low)
            promised = max((end for end, _ in history.batches.values() if end <= limit), default=0)
            note = f"seed {seed} operation {fail_at}"
            offset, missing = await _next_offset(disk.power_cut() if power else disk.killed(), clock, bound)
            assert missing == (), f"{note}: a crash was taken for a loss"
            assert promised <= offset < RESERVED_OFFSETS, f"{note}: a gap"
            for name, remove in REMOVALS.items():
                left = disk.power_cut() if power else disk.killed()
                remove(left)
                offset, missing = await _next_offset(left, clock, bound)
                noticed += bool(missing)
                assert offset >= promised, f"{note}: offset {offset} is given out again without {name}"
            if not disk.dead:
                return fail_at, noticed
            fail_at += 1

    operations, noticed = await run()
    assert operations > 80, "the history is too short to prove anything"
    assert noticed > operations
