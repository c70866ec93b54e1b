"""When the guard lets leasing and the store be, and when not."""

import random
from contextlib import suppress

import pytest

from tidemill.model.timeline_errors import StoreUnavailable, UnknownTimeline
from tidemill.timelines.clock import Clock
from tidemill.timelines.health import (
    ERRORS_IN_ROW,
    REFUSED_AGE_MS,
    WITNESSES_MIN,
    ClientKind,
    Doubt,
    HealthMonitor,
    TimelinesState,
)


class Hands:
    """A wall clock and a steady clock, moved by hand."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.steady_ms = 5_000
        self.clock = Clock(lambda: self.wall_ms * 1_000_000, lambda: self.steady_ms * 1_000_000)

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms


def _guard() -> tuple[Hands, HealthMonitor]:
    hands = Hands()
    guard = HealthMonitor(hands.clock, random.Random(1))
    guard.activate(active=True)
    guard.check()
    return hands, guard


def test_states() -> None:
    hands, guard = _guard()
    assert guard.health().state is TimelinesState.HEALTHY
    hands.wall_ms += 5_000
    assert guard.check()
    assert guard.health().state is TimelinesState.DEGRADED
    assert not guard.may_lease
    assert "jumped by 5000 ms" in guard.health().reasons[0]
    guard.activate(active=False)
    assert guard.health().state is TimelinesState.INACTIVE


def test_leases_resume_when_the_clocks_agree_again() -> None:
    hands, guard = _guard()
    hands.wall_ms -= 5_000
    guard.check()
    hands.pass_ms(1_000)
    hands.wall_ms += 5_000
    assert guard.check()
    assert guard.may_lease


def test_small_corrections_are_no_jump() -> None:
    hands, guard = _guard()
    for _ in range(100):
        hands.pass_ms(100)
        hands.wall_ms += 1
        assert not guard.check()
    assert guard.may_lease


def test_one_client_with_a_wrong_clock_proves_nothing() -> None:
    _, guard = _guard()
    guard.witness("liar", 3_600_000, ClientKind.PRODUCER)
    assert not guard.check()
    for number in range(WITNESSES_MIN):
        guard.witness(f"c{number}", 2_000, ClientKind.CONSUMER)
    assert guard.check()
    assert not guard.may_lease
    for number in range(WITNESSES_MIN):
        guard.forget(f"c{number}")
    assert guard.check()


def test_old_reports_of_clients_do_not_count() -> None:
    hands, guard = _guard()
    for number in range(WITNESSES_MIN):
        guard.witness(f"c{number}", 2_000, ClientKind.CONSUMER)
    hands.pass_ms(61_000)
    assert not guard.check()


def test_the_clock_of_a_shared_store_counts() -> None:
    _, guard = _guard()
    guard.store_drift(-1_500)
    assert guard.check()
    guard.store_drift(3)
    assert guard.check()


async def _fails() -> None:
    raise OSError("no route to host")


async def _refuses() -> None:
    raise UnknownTimeline


async def _works() -> str:
    return "done"


async def test_a_failing_store_is_asked_now_and_then_and_trusted_after_a_success() -> None:
    _, guard = _guard()

    for _ in range(ERRORS_IN_ROW):
        with pytest.raises(StoreUnavailable):
            await guard.ask_store(_fails)
    assert guard.health().state is TimelinesState.DEGRADED
    assert guard.may_lease
    answers = 0
    for _ in range(1_000):
        try:
            await guard.ask_store(_works)
        except StoreUnavailable:
            answers += 1
        else:
            break
    assert answers > 0
    assert guard.health().store_errors_in_row == 0
    assert await guard.ask_store(_works) == "done"


async def test_a_refusal_is_no_failure() -> None:
    _, guard = _guard()

    for _ in range(2 * ERRORS_IN_ROW):
        with pytest.raises(UnknownTimeline):
            await guard.ask_store(_refuses)
    assert guard.health().state is TimelinesState.HEALTHY


async def test_a_store_that_is_read_and_takes_nothing_is_degraded() -> None:
    """A full disk: what reads the store must not hide it."""
    hands, guard = _guard()

    for _ in range(2 * ERRORS_IN_ROW):
        assert await guard.ask_store(_works, reads=True) == "done"
        with pytest.raises(StoreUnavailable):
            await guard.ask_store(_fails)
    assert guard.health().state is TimelinesState.DEGRADED
    assert guard.health().reasons == ("the store rejects writes: no route to host",)
    hands.pass_ms(REFUSED_AGE_MS)
    assert guard.health().state is TimelinesState.HEALTHY, "no call was tried for long"
    with pytest.raises(StoreUnavailable):
        await guard.ask_store(_fails)
    assert guard.health().state is TimelinesState.DEGRADED
    assert await guard.ask_store(_works) == "done"
    assert guard.health().state is TimelinesState.HEALTHY


def test_each_doubt_has_its_kind() -> None:
    hands, guard = _guard()
    assert guard.doubts() == frozenset()
    guard.store_drift(5_000)
    for number in range(WITNESSES_MIN):
        guard.witness(f"c{number}", -3_000, ClientKind.CONSUMER)
    hands.wall_ms += 60_000
    guard.check()
    assert guard.doubts() == {Doubt.WALL_CLOCK, Doubt.STORE_CLOCK, Doubt.CLIENT_CLOCKS}
    assert len(guard.health().reasons) == 3


async def test_a_store_that_fails_and_one_that_rejects_writes_have_their_kinds() -> None:
    async def failing() -> None:
        raise StoreUnavailable("no")

    async def working() -> None:
        return

    _, guard = _guard()
    for _ in range(ERRORS_IN_ROW):
        with pytest.raises(StoreUnavailable):
            await guard.ask_store(failing)
    assert guard.doubts() == {Doubt.STORE_FAILING}
    while guard.sampling:  # only some operations are tried
        with suppress(StoreUnavailable):
            await guard.ask_store(working, reads=True)
    assert guard.doubts() == {Doubt.STORE_READ_ONLY}
