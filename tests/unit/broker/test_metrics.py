"""The counters of a broker."""

from tidemill.broker.metrics import RECENT_MAX, ApiTraffic


def test_durations_are_complete_whenever_they_are_read_and_few_wait() -> None:
    traffic = ApiTraffic()
    for number in range(1, 3 * RECENT_MAX):
        traffic.answered(0.002)
        assert len(traffic._recent_s) < RECENT_MAX
        if number % 100 == 0:
            assert traffic.duration.count == number
    assert traffic.duration.count == 3 * RECENT_MAX - 1
    assert traffic.duration.largest == 0.002
    assert traffic.duration is traffic.duration
