"""When a client is notified about drifts."""

from tidemill.clocks.core.drift_notices import BEGINS_MS, ENDS_MS, DriftNotices


def test_a_drift_is_reported_when_it_begins_and_when_it_ends() -> None:
    notices = DriftNotices()
    assert not notices.changes({"store": BEGINS_MS, "client": 0})
    assert notices.changes({"store": BEGINS_MS + 1, "client": 0})
    assert notices.apart({"store": 1_234.4, "client": 0}) == {"store": 1_234}
    assert not notices.changes({"store": 50_000}), "it has only grown"
    assert not notices.changes({"store": ENDS_MS + 1}), "it is not clearly smaller"
    assert notices.changes({"store": ENDS_MS})
    assert notices.apart({"store": ENDS_MS}) == {}


def test_each_clock_counts_by_itself_and_in_both_directions() -> None:
    notices = DriftNotices()
    assert notices.changes({"client": -2_000})
    assert notices.changes({"client": -2_000, "broker": 3_000})
    assert notices.changes({"broker": 3_000})


def test_a_swing_around_the_limit_causes_one_notice() -> None:
    notices = DriftNotices()
    found = [notices.changes({"client": BEGINS_MS + (50 if second % 2 else -50)}) for second in range(100)]
    assert sum(found) == 1
