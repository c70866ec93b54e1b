"""Segments that were removed or cut while the broker was stopped: reported, and no offset is given out again."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from tests.simulation.test_log_crash_faults import BATCHES, batch, filled, open_log, read_all

from tidemill.records.header import iter_headers
from tidemill.streams.segments import SegmentLog
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
def test_what_is_missing_is_reported_and_the_rest_is_served(damage: str) -> None:
    async def run() -> None:
        disk = SimDisk(Random(1))
        original = await filled(disk)
        log = await open_log(disk)
        await log.close()
        offsets = {
            path: [header.base_offset for _, header in iter_headers(disk.content(path))] for path in _segments(disk)
        }
        DAMAGES[damage](disk)
        kept = {path for path in _segments(disk) if disk.size(path)}
        log = await open_log(disk)
        assert isinstance(log._log, SegmentLog)
        assert len(log._log.report.missing) == len(offsets) - len(kept), log._log.report.missing
        assert log.log_end_offset == BATCHES, "an acknowledged offset would be given out again"
        assert (await log.append(batch(BATCHES), acks=-1)).base_offset == BATCHES
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

    asyncio.run(run())
