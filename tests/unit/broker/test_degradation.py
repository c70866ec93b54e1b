"""The reasons for a degraded broker as metrics: a fixed list, each 1 or 0."""

import errno
import os
from pathlib import Path

import pytest
from tests.support.broker_worlds import batch_of
from tests.support.readings import values_of
from tests.support.shared_store import Store
from tests.unit.broker.small_disk import SmallDisk, member

from tidemill.broker.broker import BrokerNode
from tidemill.broker.degradation import OF_TIMELINES, DegradationReason
from tidemill.broker.topic_directories import STREAMS
from tidemill.model.errors import KafkaStorageError
from tidemill.streams.segments.reserve import RETAKE_INTERVAL_MS
from tidemill.testing.clock import VirtualClock
from tidemill.timelines.health import Doubt


def holding(broker: BrokerNode) -> set[str]:
    """The reasons that are 1; all others must be 0."""
    found = values_of(reading for source in broker.metrics.sources for reading in source())
    reasons = {each: found[f'tidemill_degraded{{reason="{each.value}"}}'] for each in DegradationReason}
    assert set(reasons.values()) <= {0, 1}
    return {each.value for each, value in reasons.items() if value}


class BrokenDisk(SmallDisk):
    """A disk on which a flush may fail."""

    broken = False

    def fdatasync(self, file: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(file)


async def test_each_reason_holds_while_its_cause_does(tmp_path: Path) -> None:
    disk = BrokenDisk(tmp_path / STREAMS)
    async with member(tmp_path, Store(), disk, VirtualClock()) as broker:
        leader = broker.view.partition("orders", 0).leader
        assert holding(broker) == set()
        broker.supervisor.note_failure("a job", RuntimeError("injected"))
        assert holding(broker) == {"task_failing"}
        disk.broken = True
        with pytest.raises(KafkaStorageError):
            await leader.append(batch_of(b"lost"), acks=-1)
        assert holding(broker) == {"task_failing", "partition_failed"}
        await broker.membership.leave()
        assert holding(broker) == {"task_failing", "partition_failed", "coordination_lost"}


async def test_a_full_disk_is_a_reason_until_it_has_space(tmp_path: Path) -> None:
    clock, disk = VirtualClock(), SmallDisk(tmp_path / STREAMS)
    async with member(tmp_path, Store(), disk, clock) as broker:
        disk.full = True
        with pytest.raises(KafkaStorageError):
            await broker.view.partition("orders", 0).leader.append(batch_of(b"refused"), acks=-1)
        assert holding(broker) == {"disk_full"}
        disk.full = False
        clock.advance(RETAKE_INTERVAL_MS)
        await broker.maintain()
        assert holding(broker) == set()


def test_every_doubt_of_timelines_is_a_reason() -> None:
    assert set(OF_TIMELINES) == set(Doubt)
