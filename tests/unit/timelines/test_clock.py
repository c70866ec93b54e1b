"""Timelines while the wall clock is in doubt: no lease, no delay counted from a wrong time."""

import random

import pytest

from tidemill.model.timeline_errors import ClockInDoubt
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.scheduling.core.batch_split import split_batch
from tidemill.scheduling.core.delivery_headers import DELAY_MS, DELIVER_AT
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.clock import HOLD_MS
from tidemill.timelines.health import HealthMonitor, TimelinesState

NS = 1_000_000


class Doubt:
    """A wall clock with reasons to doubt it."""

    def __init__(self) -> None:
        self.why: tuple[str, ...] = ()
        self.has_base = True
        self.store_ms: list[int] = []

    def reasons(self) -> tuple[str, ...]:
        return self.why

    def read_store(self, their_ms: int) -> None:
        self.store_ms.append(their_ms)


def test_no_message_is_leased_while_the_clock_is_in_doubt() -> None:
    doubt = Doubt()
    guard = HealthMonitor(Clock(lambda: 10**15, lambda: 10**12), random.Random(1), trust=doubt)
    guard.activate(active=True)
    assert not guard.check()
    doubt.why = ("the wall clock is +30 d after the last time",)
    assert guard.check()
    assert not guard.may_lease
    assert guard.health().reasons == doubt.why
    doubt.why = ()
    assert guard.check()
    assert guard.health().state is TimelinesState.HEALTHY


def test_a_clock_without_a_trusted_base_counts_no_lateness() -> None:
    doubt = Doubt()
    doubt.has_base = False
    guard = HealthMonitor(Clock(lambda: 10**15, lambda: 10**12), random.Random(1), trust=doubt)
    assert not guard.may_count
    doubted = HealthMonitor(Clock(lambda: 10**15, lambda: 10**12), random.Random(1))
    doubted.store_drift(5_000)
    assert not doubted.may_count, "a shared store has another time"


def test_a_clock_that_is_not_trusted_is_never_taken_over() -> None:
    wall_ms, steady_ms, trusted = 1_000_000, 5_000, False
    clock = Clock(lambda: wall_ms * NS, lambda: steady_ms * NS, trusted=lambda: trusted)
    wall_ms += 3_600_000
    for _ in range(3):
        wall_ms, steady_ms = wall_ms + HOLD_MS, steady_ms + HOLD_MS
        assert clock.now_ms() == 1_000_000 + steady_ms - 5_000
    trusted = True
    assert clock.now_ms() == wall_ms


def test_a_start_in_doubt_counts_from_the_time_that_is_known() -> None:
    wall_ms, steady_ms = 9_000_000, 5_000
    clock = Clock(lambda: wall_ms * NS, lambda: steady_ms * NS, trusted=lambda: False, start_ms=1_000_000)
    assert clock.now_ms() == 1_000_000
    wall_ms = 1_000_100  # set right
    assert clock.now_ms() == 1_000_000
    assert clock.drift_ms == 0


def test_a_delay_is_refused_without_a_time_to_count_from() -> None:
    def batch(header: str, value: bytes) -> bytearray:
        return build_batch([NewRecord(b"k", b"v", ((header, value),), 0)])

    delayed = batch(DELAY_MS, b"1000")
    with pytest.raises(ClockInDoubt, match="in doubt"):
        split_batch(delayed, read_header(delayed), 0, None)
    at = batch(DELIVER_AT, b"5000")
    plan = split_batch(at, read_header(at), 0, None)
    assert plan is not None
    assert plan.waiting[0].due_ms == 5_000
