"""Recent events in memory: repeats are counted, every bound holds, and a flood of one kind leaves the others."""

import threading

import pytest

from tidemill.broker import recent_log
from tidemill.broker.recent_log import (
    BYTES_MAX,
    ENTRIES_MAX,
    EVENT_CHARS_MAX,
    FIELDS_MAX,
    NAME_CHARS_MAX,
    OF_SOURCE_MAX,
    TRACEBACK_CHARS_MAX,
    VALUE_CHARS_MAX,
    RecentLog,
)


def events(log: RecentLog) -> list[tuple[str, int]]:
    return [(each.text.event, each.occurrences) for each in log.newest()]


def test_events_are_listed_newest_first() -> None:
    log = RecentLog()
    log.add(1, "warning", "tidemill.a", "one", {"topic": "orders", "bytes": 5})
    log.add(2, "error", "tidemill.a", "two", {}, "Traceback: no")
    log.add(3, "critical", "tidemill.a", "three", {})
    three, two, one = log.newest()
    assert one.text.fields == (("topic", "orders"), ("bytes", "5"))
    assert (two.text.level, two.text.traceback, two.last_ms) == ("error", "Traceback: no", 2)
    assert three.text.level == "error"


def test_a_repeat_is_counted_and_becomes_the_newest() -> None:
    log = RecentLog()
    for now_ms, event in enumerate(["again", "other", "again", "again"]):
        log.add(now_ms, "warning", "tidemill.a", event, {"broker": 2})
    assert events(log) == [("again", 3), ("other", 1)]
    again = log.newest()[0]
    assert (again.first_ms, again.last_ms, again.number) == (0, 3, 1)
    log.add(9, "warning", "tidemill.a", "again", {"broker": 3})
    assert events(log)[:2] == [("again", 1), ("again", 3)]


def test_different_errors_are_counted_since_a_time() -> None:
    log = RecentLog()
    for now_ms, level, event in ((1, "error", "old"), (5, "warning", "slow"), (6, "error", "new"), (9, "error", "new")):
        log.add(now_ms, level, "tidemill.a", event, {})
    assert [log.errors_since(time_ms) for time_ms in (0, 2, 9, 10)] == [2, 1, 1, 0]


def test_texts_are_cut() -> None:
    log = RecentLog()
    fields = {f"{number}-{'n' * 100}": "v" * 5_000 for number in range(FIELDS_MAX + 5)}
    log.add(0, "error", "l" * 100, "e" * 1_000, fields, "x" * 20_000 + "the reason")
    text = log.newest()[0].text
    assert len(text.logger) == NAME_CHARS_MAX
    assert len(text.event) == EVENT_CHARS_MAX + 1
    assert len(text.fields) == FIELDS_MAX
    assert max(len(name) for name, _ in text.fields) == NAME_CHARS_MAX
    assert {len(value) for _, value in text.fields} == {VALUE_CHARS_MAX + 1}
    assert len(text.traceback) == TRACEBACK_CHARS_MAX + 1
    assert text.traceback.endswith("the reason")


def test_a_flood_of_one_event_leaves_the_others() -> None:
    log = RecentLog()
    log.add(0, "error", "tidemill.disk", "partition_open_failed", {})
    for number in range(3 * ENTRIES_MAX):
        log.add(number, "warning", "tidemill.audit", "login_failed", {"who": str(number)})
    found = events(log)
    assert len(found) == OF_SOURCE_MAX + 1
    assert found[-1] == ("partition_open_failed", 1)
    assert log.dropped == 3 * ENTRIES_MAX - OF_SOURCE_MAX


def test_a_flood_of_a_library_counts_as_one_kind() -> None:
    log = RecentLog()
    for number in range(2 * OF_SOURCE_MAX):
        log.add(number, "warning", "library", f"sentence {number}", {})
    assert len(log.newest()) == OF_SOURCE_MAX


def test_entries_and_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = RecentLog()
    for number in range(ENTRIES_MAX + 10):
        log.add(number, "warning", "tidemill.a", f"event {number}", {})
    assert len(log.newest()) == ENTRIES_MAX
    assert events(log)[-1] == ("event 10", 1)
    for number in range(2_000):
        log.add(number, "warning", "tidemill.a", f"large {number}", {str(each): "x" * 900 for each in range(10)})
    kept = log.newest()
    assert 0 < sum(each.text.size_bytes for each in kept) <= BYTES_MAX
    monkeypatch.setattr(recent_log, "BYTES_MAX", 0)
    log.add(0, "warning", "tidemill.a", "last", {})
    assert log.newest() == []
    assert log._of_source == {}
    assert log._bytes == 0


def test_threads_add_events_together() -> None:
    log = RecentLog()

    def add() -> None:
        for number in range(500):
            log.add(number, "warning", "tidemill.a", f"event {number % 7}", {})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(each.occurrences for each in log.newest()) == 2_000
