"""Tokens come at a steady rate, and one request may overdraw the bucket."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.security.core.token_bucket import TokenBucket


def test_a_bucket_begins_full_and_may_be_overdrawn() -> None:
    bucket = TokenBucket(10.0, 0.0)
    bucket.take(25.0, 2.0, 10.0, 0.0)
    assert bucket.tokens(2.0, 10.0, 0.0) == -15.0
    assert bucket.tokens(2.0, 10.0, 5.0) == -5.0
    assert bucket.tokens(2.0, 10.0, 60.0) == 10.0


def test_returned_tokens_do_not_exceed_the_burst() -> None:
    bucket = TokenBucket(10.0, 0.0)
    bucket.take(4.0, 1.0, 10.0, 0.0)
    bucket.take(-8.0, 1.0, 10.0, 0.0)
    assert bucket.tokens(1.0, 10.0, 0.0) == 10.0


def test_a_stopped_clock_adds_no_tokens() -> None:
    bucket = TokenBucket(1.0, 5.0)
    bucket.take(2.0, 1.0, 1.0, 5.0)
    assert bucket.tokens(1.0, 1.0, 4.0) == -1.0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), max_size=100), st.floats(0.5, 20))
def test_accepted_changes_never_exceed_rate_plus_burst_plus_one_request(
    asked: list[tuple[float, int]], rate: float
) -> None:
    burst = rate * 11
    bucket = TokenBucket(burst, 0.0)
    now, accepted, largest = 0.0, 0, 0
    for pause_s, count in asked:
        now += pause_s
        if bucket.tokens(rate, burst, now) >= 0:
            bucket.take(count, rate, burst, now)
            accepted, largest = accepted + count, max(largest, count)
        assert accepted <= rate * now + burst + largest + 1e-6
