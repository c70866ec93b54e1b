"""The circuit of a timeline: what opens it, what must not, and how it closes again."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.timelines.core.circuit import (
    FAILED_MESSAGES_MIN,
    PAUSE_MS_MAX,
    PAUSE_MS_MIN,
    PROBES_MAX,
    WINDOW_MS,
    CircuitState,
    DeliveryCircuit,
)

GOOD, BAD = "good", "bad"


class Line:
    """A circuit with consumers that complete or fail all of their leases."""

    def __init__(self, *, good: int = 0, bad: int = 0, percent: int = 80) -> None:
        self.circuit = DeliveryCircuit(percent)
        self.consumers = [*(f"{GOOD}{one}" for one in range(good)), *(f"{BAD}{one}" for one in range(bad))]
        self.now_ms = 0
        self.seq = 0

    @property
    def state(self) -> CircuitState:
        return self.circuit.state

    def settle(self, consumer: str, *, failed: bool | None = None, seq: int = 0) -> None:
        self.seq += 1
        failed = consumer.startswith(BAD) if failed is None else failed
        self.circuit.settled(consumer, seq or self.seq, 1, failed=failed, now_ms=self.now_ms)

    def check(self) -> bool:
        return self.circuit.check(self.now_ms, self.consumers)

    def work(self, rounds: int = FAILED_MESSAGES_MIN) -> CircuitState:
        """Every consumer settles one lease in each round."""
        for _ in range(rounds):
            for consumer in self.consumers:
                self.settle(consumer)
            self.check()
        return self.state

    def probe(self, *outcomes: bool) -> CircuitState:
        """Wait for the probes, send as many as there are outcomes, and settle them; False is a failure."""
        self.now_ms = max(self.now_ms, self.circuit.retry_ms)
        self.check()
        allowed = self.circuit.allowance()
        assert allowed is not None
        assert allowed >= len(outcomes)
        probes = range(self.seq + 1, self.seq + 1 + len(outcomes))
        self.seq += len(outcomes)
        for seq in probes:
            self.circuit.probed(seq, 2)
        for seq, done in zip(probes, outcomes, strict=True):
            self.circuit.settled("any", seq, 2, failed=not done, now_ms=self.now_ms)
        self.check()
        return self.state


@pytest.mark.parametrize(("good", "bad"), [(0, 1), (0, 3), (1, 2), (2, 3), (1, 9)])
def test_the_circuit_opens_when_most_consumers_fail(good: int, bad: int) -> None:
    line = Line(good=good, bad=bad, percent=50)
    assert line.work() is CircuitState.OPEN
    assert line.circuit.allowance() == 0
    assert line.circuit.verdict == (bad, good + bad)


@pytest.mark.parametrize(("good", "bad"), [(1, 1), (2, 1), (9, 1), (3, 2), (1, 0)])
def test_bad_consumers_among_as_many_good_ones_do_not_open_it(good: int, bad: int) -> None:
    line = Line(good=good, bad=bad, percent=1)
    assert line.work(1_000) is CircuitState.CLOSED
    assert line.circuit.allowance() is None


def test_good_consumers_that_have_not_ended_a_lease_yet_count_as_good() -> None:
    line = Line(good=2, bad=1)
    for _ in range(1_000):
        line.settle("bad0")
        assert not line.check()
    line.consumers = ["bad0"]  # the others are busy now, or have left
    line.settle("bad0")
    assert line.check()


def test_consumers_with_little_work_that_fail_do_not_stop_one_that_does_most_of_it() -> None:
    line = Line(good=1, bad=3)
    for _ in range(FAILED_MESSAGES_MIN):
        line.settle("bad0")
        line.settle("bad1")
        line.settle("bad2")
        for _ in range(100):
            line.settle("good0")
        line.check()
    assert line.state is CircuitState.CLOSED


def test_a_few_messages_that_are_tried_again_and_again_do_not_open_it() -> None:
    line = Line(bad=1)
    for number in range(10_000):
        line.settle("bad0", seq=1 + number % (FAILED_MESSAGES_MIN - 1))
        assert not line.check()


def test_failures_of_long_ago_do_not_count() -> None:
    line = Line(bad=1)
    for _ in range(100):
        line.settle("bad0")
        line.check()
        line.now_ms += 2 * WINDOW_MS // FAILED_MESSAGES_MIN
    assert line.state is CircuitState.CLOSED


def test_a_share_of_zero_switches_it_off() -> None:
    assert Line(bad=3, percent=0).work(100) is CircuitState.CLOSED


def test_the_share_of_failed_leases_is_that_of_the_setting() -> None:
    for percent, state in ((71, CircuitState.CLOSED), (70, CircuitState.OPEN)):
        line = Line(bad=1, percent=percent)
        for number in range(1_000):
            line.settle("bad0", failed=number % 10 < 7)
            if number % 10 == 9:
                line.check()
        assert line.state is state


def test_probes_that_are_completed_close_it_and_it_begins_afresh() -> None:
    line = Line(bad=3)
    line.work()
    assert line.circuit.retry_ms == line.now_ms + PAUSE_MS_MIN
    assert line.probe(True, False) is CircuitState.CLOSED
    line.settle("bad0")
    assert not line.check()


def test_probes_that_fail_double_the_pause_up_to_its_maximum() -> None:
    line = Line(bad=3)
    line.work()
    pauses = []
    for _ in range(10):
        assert line.probe(False, False) is CircuitState.OPEN
        pauses.append(line.circuit.retry_ms - line.now_ms)
    assert pauses[:3] == [2 * PAUSE_MS_MIN, 4 * PAUSE_MS_MIN, 8 * PAUSE_MS_MIN]
    assert pauses[-1] == PAUSE_MS_MAX
    assert line.circuit.opened == 11


def test_one_bad_consumer_does_not_keep_it_open() -> None:
    line = Line(good=2, bad=1)
    line.circuit.state, line.circuit.retry_ms = CircuitState.OPEN, 5
    assert line.probe(False, True, True) is CircuitState.CLOSED


def test_the_pause_grows_when_the_circuit_opens_again_soon_and_starts_over_later() -> None:
    line = Line(bad=1)
    line.work()
    assert line.probe(False) is CircuitState.OPEN
    assert line.probe(True) is CircuitState.CLOSED
    line.work()
    assert line.circuit.retry_ms - line.now_ms == 4 * PAUSE_MS_MIN
    assert line.probe(True) is CircuitState.CLOSED
    line.now_ms += WINDOW_MS
    line.work()
    assert line.circuit.retry_ms - line.now_ms == PAUSE_MS_MIN


def test_probes_without_an_outcome_are_followed_by_others() -> None:
    line = Line(bad=2)
    line.work()
    assert line.circuit.next_ms() == line.circuit.retry_ms
    line.now_ms = line.circuit.retry_ms
    line.check()
    assert line.circuit.next_ms() is None, "it waits for messages that are due"
    line.circuit.probed(9_001, 2)
    line.circuit.probed(9_002, 2)
    assert line.circuit.allowance() == 0
    line.now_ms = line.circuit.next_ms() or 0
    line.check()
    assert line.circuit.allowance() == 2
    line.circuit.settled("bad0", 9_001, 2, failed=False, now_ms=line.now_ms)
    line.check()
    assert line.state is CircuitState.CLOSED


def test_a_probe_that_was_taken_back_is_sent_again() -> None:
    line = Line(bad=1)
    line.work()
    line.now_ms = line.circuit.retry_ms
    line.check()
    line.circuit.probed(9_001, 2)
    line.circuit.returned(9_001, 1)
    assert line.circuit.allowance() == 0, "another token is another lease"
    line.circuit.returned(9_001, 2)
    assert line.circuit.allowance() == 1


def test_outcomes_of_older_leases_decide_nothing_while_it_is_open() -> None:
    line = Line(bad=3)
    line.work()
    assert line.work(100) is CircuitState.OPEN
    line.now_ms = line.circuit.retry_ms
    line.check()
    assert line.work(100) is CircuitState.HALF_OPEN


def test_ids_of_clients_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.timelines.core.circuit.CONSUMERS_MAX", 10)
    line = Line()
    for number in range(1_000):
        line.settle(f"bad{number % 500}")
    assert line.check()
    assert line.circuit.verdict.consumers == 10


@given(st.integers(0, 6), st.integers(0, 6), st.randoms(use_true_random=False), st.integers(1, 100))
def test_most_consumers_must_fail_and_every_pause_ends(good: int, bad: int, rng: random.Random, percent: int) -> None:
    """Any mix of consumers, in any order: it opens if and only if most are bad, allows few probes, and never hangs."""
    line = Line(good=good, bad=bad, percent=percent)
    for _ in range(40):
        for consumer in rng.sample(line.consumers, len(line.consumers)):
            line.settle(consumer)
            line.check()
        line.now_ms += rng.randrange(500)
        if line.state is CircuitState.HALF_OPEN:
            allowance = line.circuit.allowance()
            assert allowance is not None
            assert 0 <= allowance <= min(PROBES_MAX, max(1, good + bad))
        if line.state is not CircuitState.CLOSED:
            assert line.circuit.retry_ms - line.now_ms <= PAUSE_MS_MAX
    if bad <= good:
        assert line.circuit.opened == 0
    elif good == 0:
        assert line.circuit.opened > 0
    if line.state is not CircuitState.CLOSED:
        assert line.probe(True) is CircuitState.CLOSED
