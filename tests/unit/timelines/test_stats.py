"""What is counted of timelines: lateness without messages of the past, errors, and a bounded number of names."""

import uuid

import pytest

from tidemill.model.message_ids import RANDOM_BITS, drawn_ms, new_id
from tidemill.model.timeline_errors import BadDueTime
from tidemill.timelines import stats as stats_module
from tidemill.timelines.core.lease import LeaseGrant
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.stats import CREATED, LEASED, OTHER_TIMELINES, SCHEDULED, TimelineCounts, TimelineStats

NOW = 1_800_000_000_000


def deliver(stats: TimelineStats, message_id: str, due_ms: int, now_ms: int, *, attempts: int = 1) -> None:
    """Count the delivery of a message with a body of 10 bytes."""
    message = TimedMessage(1, message_id, due_ms, due_ms, 0, "", None, 0, 1, attempts - 1, 10, None)
    stats.delivered([(message, LeaseGrant(1, 2, "w", now_ms + 5_000, attempts))], now_ms)


def test_the_time_of_a_drawn_id_is_known_and_that_of_a_chosen_one_is_not() -> None:
    assert drawn_ms(new_id(NOW, 2**RANDOM_BITS - 1)) == NOW
    assert drawn_ms("order-17") == -1
    assert drawn_ms("ä" * 32) == -1


def test_a_message_of_the_past_counts_apart_and_not_as_late() -> None:
    stats = TimelineStats()
    stats.scheduled([("old", NOW - 86_400_000), ("now", NOW - 20), ("later", NOW + 5_000)], NOW)
    deliver(stats, "old", NOW - 86_400_000, NOW + 5)
    assert (stats.past_due, stats.lateness.count) == (1, 0)
    deliver(stats, "now", NOW - 20, NOW + 5)
    deliver(stats, "later", NOW + 5_000, NOW + 5_003)
    assert stats.lateness.count == 2
    assert stats.lateness.largest == pytest.approx(0.025)


def test_a_message_of_the_past_that_another_broker_stored_is_known_by_its_id() -> None:
    stats = TimelineStats()
    deliver(stats, new_id(NOW, 7), NOW - 86_400_000, NOW + 100)
    assert stats.lateness.count == 0
    # A chosen id that looks like a drawn one, of a time that has not come, says nothing.
    deliver(stats, uuid.UUID(int=2**127 + 5, version=4).hex, NOW, NOW + 5_000)
    assert stats.lateness.count == 1


def test_lateness_is_never_negative() -> None:
    stats = TimelineStats()
    deliver(stats, "early", NOW, NOW - 40)
    assert (stats.lateness.count, stats.lateness.total, stats.lateness.counts[0]) == (1, 0.0, 1)


def test_messages_of_the_past_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "PAST_DUE_MAX", 5)
    stats = TimelineStats()
    stats.scheduled(((f"m{index}", 0) for index in range(100)), NOW)
    assert (stats.past_due, list(stats._past_due_ids)) == (100, [f"m{index}" for index in range(95, 100)])


def test_an_error_rejects_the_whole_batch() -> None:
    stats = TimelineStats()
    with pytest.raises(BadDueTime), stats.failures(SCHEDULED, 3):
        raise BadDueTime("no such time")
    assert stats.errors == {(SCHEDULED, "BadDueTime"): 3}


def test_commands_are_counted_with_their_errors() -> None:
    counts = TimelineCounts()
    with counts.command(CREATED):
        pass
    with pytest.raises(BadDueTime), counts.command(CREATED):
        raise BadDueTime("no such time")
    assert counts.commands[CREATED] == 2
    assert counts.command_errors == {(CREATED, "BadDueTime"): 1}


def test_only_some_timelines_are_counted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "NAMED_MAX", 2)
    counts = TimelineCounts()
    for name in ("a", "b", "c", "d"):
        counts.of(name).messages[SCHEDULED] += 1
    assert counts.names() == [OTHER_TIMELINES, "a", "b"]
    assert counts.of(OTHER_TIMELINES).messages[SCHEDULED] == 2
    counts.forget("a")
    assert counts.get("a") is None


def test_a_later_attempt_is_not_late_and_counts_as_an_attempt() -> None:
    stats = TimelineStats()
    deliver(stats, "a", NOW, NOW + 10)
    deliver(stats, "a", NOW, NOW + 60_000, attempts=2)
    deliver(stats, "a", NOW, NOW + 90_000, attempts=3)
    assert (stats.lateness.count, stats.leases[LEASED], stats.leased_bytes) == (1, 3, 30)
    assert stats.attempts.counts[:4] == [1, 1, 1, 0]
