"""Producers whose requests mostly fail wait; others never do."""

from tidemill.security.core.failing_producers import (
    DELAY_S,
    FAILING_PRODUCERS_MAX,
    FAILING_REQUESTS_MIN,
    FORGOTTEN_AFTER_S,
    REMEMBERED_REQUESTS_MAX,
    FailingProducers,
)


def outcomes(producers: FailingProducers, *, failed: int = 0, succeeded: int = 0, now: float = 0.0) -> list[float]:
    waits = [producers.record("ann", "app", now, has_failed=True) for _ in range(failed)]
    return waits + [producers.record("ann", "app", now, has_failed=False) for _ in range(succeeded)]


def test_a_failing_producer_waits_after_the_minimum_of_requests() -> None:
    producers = FailingProducers(90)
    waits = outcomes(producers, failed=FAILING_REQUESTS_MIN + 5)
    assert waits[: FAILING_REQUESTS_MIN - 1] == [0.0] * (FAILING_REQUESTS_MIN - 1)
    assert set(waits[FAILING_REQUESTS_MIN - 1 :]) == {DELAY_S}
    assert producers.throttled == 6


def test_requests_that_succeed_end_it() -> None:
    producers = FailingProducers(90)
    outcomes(producers, failed=REMEMBERED_REQUESTS_MAX)
    assert set(outcomes(producers, succeeded=10)) == {0.0}
    assert outcomes(producers, failed=1) == [0.0]
    outcomes(producers, succeeded=REMEMBERED_REQUESTS_MAX * 10)
    assert not producers.is_watching


def test_a_producer_with_few_failures_never_waits() -> None:
    producers = FailingProducers(90)
    for _ in range(200):
        assert set(outcomes(producers, failed=4, succeeded=1)) == {0.0}


def test_a_producer_without_failures_is_not_known() -> None:
    producers = FailingProducers(90)
    outcomes(producers, succeeded=100)
    assert not producers.is_watching


def test_100_percent_means_never() -> None:
    producers = FailingProducers(100)
    assert set(outcomes(producers, failed=100)) == {0.0}
    assert not producers.is_watching


def test_a_producer_is_a_user_and_a_client_id() -> None:
    producers = FailingProducers(90)
    outcomes(producers, failed=FAILING_REQUESTS_MIN)
    assert producers.record("ann", "other", 0.0, has_failed=True) == 0.0
    assert producers.record("bob", "app", 0.0, has_failed=True) == 0.0
    assert producers.record("ann", "app", 0.0, has_failed=True) == DELAY_S


def test_idle_producers_are_forgotten_and_their_number_is_bounded() -> None:
    producers = FailingProducers(90)
    outcomes(producers, failed=FAILING_REQUESTS_MIN)
    assert outcomes(producers, failed=1, now=FORGOTTEN_AFTER_S + 1) == [DELAY_S]  # not idle before this request
    producers.record("bob", "b", 2 * FORGOTTEN_AFTER_S + 2, has_failed=False)
    assert not producers.is_watching
    for number in range(FAILING_PRODUCERS_MAX + 50):
        producers.record("eve", f"{number}" * 1000, 1000.0, has_failed=True)
    assert len(producers._known) == 1_000
    assert all(len(client) <= 256 for _, client in producers._known)


def test_a_producer_that_fails_now_is_not_forgotten_for_new_ones() -> None:
    producers = FailingProducers(90)
    outcomes(producers, failed=FAILING_REQUESTS_MIN)
    for number in range(FAILING_PRODUCERS_MAX - 1):
        producers.record("eve", str(number), 1.0, has_failed=True)
    outcomes(producers, failed=1, now=2.0)
    producers.record("eve", "one more", 3.0, has_failed=True)
    assert outcomes(producers, failed=1, now=4.0) == [DELAY_S]
    assert ("eve", "0") not in producers._known


def test_a_producer_that_only_fails_always_waits() -> None:
    waits = outcomes(FailingProducers(90), failed=10 * REMEMBERED_REQUESTS_MAX)
    assert set(waits[FAILING_REQUESTS_MIN - 1 :]) == {DELAY_S}
