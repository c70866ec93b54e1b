"""Options of the parallel consumer: what is refused, and how long a retry waits."""

from typing import Any

import pytest

from tidemill.client.parallel.options import InvalidOption, ParallelOptions, Retry, ordering_of
from tidemill.client.parallel.work import Ordering

CONFIG = {"bootstrap.servers": "h:9092", "group.id": "g"}


def options(**changes: Any) -> ParallelOptions:
    return ParallelOptions(**{"config": CONFIG, "topics": ["a"], **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"attempts": 0},
        {"backoff_ms": -1},
        {"backoff_ms": 11, "max_backoff_ms": 10},
        {"jitter": -0.1},
        {"jitter": 1.1},
    ],
)
def test_retries_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=r"retry\."):
        Retry(**changes)


@pytest.mark.parametrize(
    "changes",
    [{"attempts": 1}, {"backoff_ms": 0}, {"backoff_ms": 10, "max_backoff_ms": 10}, {"jitter": 0}, {"jitter": 1}],
)
def test_the_ends_of_the_ranges_of_a_retry_are_allowed(changes: dict[str, Any]) -> None:
    assert Retry(**changes)


def test_the_wait_doubles_up_to_its_limit() -> None:
    retry = Retry(backoff_ms=100, max_backoff_ms=1_000, jitter=0.2)
    assert [retry.wait_ms(attempt, 0.5) for attempt in (1, 2, 3, 4, 5, 100)] == [100, 200, 400, 800, 1_000, 1_000]
    assert [retry.wait_ms(1, chance) for chance in (0.0, 0.25, 1.0)] == [80, 90, 120]


def test_a_wait_of_very_many_attempts_is_no_large_number() -> None:
    largest = Retry(backoff_ms=1, max_backoff_ms=2**40, jitter=0)
    assert largest.wait_ms(31, 0.5) == largest.wait_ms(32, 0.5) == largest.wait_ms(10**9, 0.5) == 2**30


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"config": {"group.id": "g"}}, "bootstrap.servers"),
        ({"config": {"bootstrap.servers": "h:9092"}}, "group.id"),
        ({"config": {**CONFIG, "enable.auto.commit": True}}, "enable.auto.commit"),
        ({"topics": "a"}, "topics is not a list"),
        ({"topics": []}, "topics is not a list"),
        ({"dead_letter": "a"}, "dead_letter='a' is also in topics"),
        ({"retry": 5}, "retry=5 is not a Retry"),
        ({"workers": 0}, "workers=0 is not between 1 and"),
        ({"workers": "4"}, "workers='4' is not a whole number"),
        ({"executor": "fiber"}, "executor='fiber' is neither"),
        ({"tracking": "none"}, "tracking='none' is neither"),
        ({"on_exhausted": "stop"}, "on_exhausted='stop' is neither"),
        ({"commit_interval_ms": 0}, "commit_interval_ms=0 is below 1"),
        ({"commit_every": 0}, "commit_every=0 is below 1"),
        ({"error_threshold": 0}, "error_threshold=0 is below 1"),
        ({"max_in_flight": 0}, "max_in_flight=0 is below 1"),
        ({"revoke_timeout_ms": -1}, "revoke_timeout_ms=-1 is below 0"),
        ({"metadata_bytes_max": -1}, "metadata_bytes_max=-1 is below 0"),
        ({"max_records": 0}, "max_records=0 is below 1"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        options(**changes)
    assert sentence in str(caught.value)


def test_the_ends_of_the_ranges_are_allowed() -> None:
    ones = dict.fromkeys(("workers", "commit_interval_ms", "commit_every", "error_threshold", "max_in_flight"), 1)
    assert options(**ones, revoke_timeout_ms=0, metadata_bytes_max=0, max_records=1, dead_letter="b")


def test_the_defaults_are_those_of_the_documentation() -> None:
    given = options()
    assert (given.workers, given.executor, given.tracking, given.ordering) == (100, "thread", "partition", Ordering.KEY)
    assert (given.commit_interval_ms, given.commit_every, given.max_in_flight) == (5_000, 1_000, 10_000)
    assert (given.error_threshold, given.revoke_timeout_ms) == (100, 10_000)
    assert given.retry == Retry(attempts=5, backoff_ms=100, max_backoff_ms=10_000, jitter=0.2)


def test_orderings_have_names() -> None:
    assert ordering_of("partition") is Ordering.PARTITION
    with pytest.raises(InvalidOption, match="ordering='any' is not one of"):
        ordering_of("any")
