"""Lateness of the demo's reminders."""

from tidemill.cli.demo.reminders import Lateness, lateness


def test_percentiles() -> None:
    assert lateness([]) is None
    assert lateness([3.0]) == Lateness(3.0, 3.0, 3.0)
    assert lateness([float(n) for n in range(100, -1, -1)]) == Lateness(50.0, 99.0, 100.0)
