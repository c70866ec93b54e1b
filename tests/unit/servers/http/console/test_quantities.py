"""Numbers, sizes and times as text."""

import pytest

from tidemill.servers.http.console.quantities import (
    TEXTS,
    duration_text,
    exact_time_text,
    share_text,
    short_text,
    size_text,
    time_input,
    time_text,
)


def test_sizes_are_written_for_people() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 3_500_000, 5 << 40, None)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "3.3 MiB",
        "5.0 TiB",
        "unknown",
    ]


def test_numbers_are_short() -> None:
    found = [short_text(value) for value in (0, 0.5, 7, 12.34, 999, 1_000, 12_345, 1_000_000, 2.5e12, -4_000)]
    assert found == ["0", "0.5", "7", "12.3", "999", "1k", "12.3k", "1M", "2.5T", "-4k"]


def test_durations_have_one_unit() -> None:
    found = [duration_text(value) for value in (0, 0.0015, 0.25, 1, 59, 60, 90, 3_700, 129_600, 200_000, 2_592_000)]
    assert found == ["0 s", "1.5 ms", "250 ms", "1 s", "59 s", "1 min", "1.5 min", "1 h", "1.5 d", "2.3 d", "30 d"]


def test_shares_are_percent() -> None:
    assert [share_text(value) for value in (0, 0.005, 0.25, 1)] == ["0 %", "0.5 %", "25 %", "100 %"]


def test_times_are_utc_and_a_time_that_does_not_exist_is_a_number() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert time_text(1 << 62) == f"{1 << 62} ms"
    assert time_text(None) == "-"


def test_exact_times_have_milliseconds() -> None:
    assert exact_time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert exact_time_text(-1) == "none"
    assert exact_time_text(1 << 62) == f"{1 << 62} ms"
    assert time_input(1_700_000_000_003) == "2023-11-14T22:13:20.003"
    assert time_input(1 << 62) == ""


@pytest.mark.parametrize("unit", TEXTS)
def test_an_unknown_value_is_named(unit: str) -> None:
    assert TEXTS[unit](None) == "unknown"
