"""Due times as users write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.client.timelines.message import MS_MAX, due_ms, from_ms
from tidemill.model.timeline_errors import BadDueTime


@pytest.mark.parametrize(
    ("due", "ms"),
    [
        (0, 0),
        (1.5, 1_500),
        (1.0001, 1_001),
        (1_800_000_000.123, 1_800_000_000_123),
        (-1, -1_000),
        (datetime(2026, 12, 24, 18, tzinfo=UTC), 1_798_135_200_000),
        (datetime(2026, 12, 24, 20, tzinfo=timezone(timedelta(hours=2))), 1_798_135_200_000),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1),
    ],
)
def test_milliseconds(due: datetime | float, ms: int) -> None:
    assert due_ms(due) == ms


@pytest.mark.parametrize("due", [float("nan"), float("inf"), 1e300, -1e300])
def test_an_invalid_due_time_is_rejected(due: float) -> None:
    with pytest.raises(BadDueTime):
        due_ms(due)


@given(st.datetimes(timezones=st.timezones()))
def test_a_due_time_is_never_rounded_down(due: datetime) -> None:
    try:
        ms = due_ms(due)
    except BadDueTime:
        return
    if ms <= MS_MAX:
        assert timedelta(0) <= from_ms(ms) - due < timedelta(milliseconds=1)


def test_the_last_millisecond_can_be_shown() -> None:
    assert from_ms(MS_MAX).year == from_ms(MS_MAX + 10).year == 9999
