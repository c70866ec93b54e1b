"""Times and durations as people write them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.cli.durations import duration_ms, moment_ms
from tidemill.cli.errors import WrongUse

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("250ms", 250),
        ("5s", 5_000),
        ("1.5s", 1_500),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("0s", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "5 parsecs", "-5s", "5s!", "1h30", "5S"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW_MS),
        ("1234", 1_234),
        ("15m ago", NOW_MS - 900_000),
        ("15m", NOW_MS - 900_000),
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.250Z", 250),
    ],
)
def test_moments(text: str, ms: int) -> None:
    assert moment_ms(text, now_ms=NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "ago", "15 ago"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(WrongUse, match="is not a time"):
        moment_ms(text, now_ms=NOW_MS)


WRITTEN = st.text(max_size=50) | st.from_regex(r"[0-9]{1,60}(ms|s|w)?( ago)?|[0-9]{4}-[0-9]{2}-[0-9]{2}(T.{0,12})?")


@given(WRITTEN)
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (duration_ms, lambda each: moment_ms(each, now_ms=NOW_MS)):
        with suppress(WrongUse):
            assert isinstance(read(text), int)
