"""The drifts that clients learn: provable ones, and of clients only what most of them report."""

import random
from pathlib import Path

from tests.unit.broker.test_clock_metrics import NOW, FixedClocks

from tidemill.broker.clock_drifts import clock_drifts
from tidemill.clocks.core.doubt import DoubtKind, DoubtLimits, Reading
from tidemill.clocks.record import ClockRecord
from tidemill.clocks.watch import ClockWatch
from tidemill.timelines.clock import Clock
from tidemill.timelines.health import ClientKind, HealthMonitor


def test_the_largest_provable_difference_of_servers_counts(tmp_path: Path) -> None:
    watch = ClockWatch(FixedClocks(), ClockRecord(tmp_path, ()), DoubtLimits())
    for target, offset_ms, error_ms in (("broker 1", 400, 500), ("broker 2", -3_000, 100)):
        watch._core.read(Reading(DoubtKind.BROKERS, target, NOW + offset_ms, error_ms, 5_000))
    watch._core.read(Reading(DoubtKind.COORDINATION, "coordination", NOW + 600, 700, 5_000))
    watch.look()
    guard = HealthMonitor(Clock(), random.Random(1))
    assert clock_drifts(watch, guard) == {"broker": -2_900, "coordination": 0}
    guard.store_drift(-1_500.0)
    assert clock_drifts(None, guard) == {"store": -1_500}


def test_one_client_alarms_no_others() -> None:
    guard = HealthMonitor(Clock(), random.Random(1))
    guard.witness("liar", 1e15, ClientKind.PRODUCER)
    guard.witness("second", 5.0, ClientKind.PRODUCER)
    assert clock_drifts(None, guard) == {}
    guard.witness("third", 7.0, ClientKind.PRODUCER)
    assert clock_drifts(None, guard) == {"producers": 7.0}
