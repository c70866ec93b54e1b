"""The clocks of the system."""

import time

import pytest

from tidemill.app.clocks import SystemClocks


def test_the_boot_clock_counts_sleep_where_there_is_no_boottime(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS CLOCK_MONOTONIC counts the time asleep, and `time.monotonic` does not."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    read_ns = {time.CLOCK_MONOTONIC: 36_000_000_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", read_ns.__getitem__)
    assert SystemClocks().boot_ms() == 36_000_000


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux only")
def test_the_boot_clock_of_linux_is_boottime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime_ns", {time.CLOCK_BOOTTIME: 5_000_000}.__getitem__)
    assert SystemClocks().boot_ms() == 5
