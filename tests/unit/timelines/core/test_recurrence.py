"""When recurring messages are due: cron expressions, clock changes, intervals, and occurrences that were missed."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies

from tidemill.timelines.core.errors import BadDueTime, BadRecurrence, StoreCorrupt
from tidemill.timelines.core.recurrence import (
    COUNT_MAX,
    CRON_CHARS_MAX,
    EVERY_MS_MAX,
    MISSED_AFTER_MS,
    MISSED_MAX,
    MissedPolicy,
    Occurrence,
    Recurrence,
    first_occurrence,
    missed_policy,
    next_occurrence,
    recurrence_from,
    was_missed,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def shown(due_ms: int) -> str:
    return datetime.fromtimestamp(due_ms / 1_000, UTC).isoformat(timespec="minutes").removesuffix("+00:00")


def times(rule: Recurrence, start: str, count: int) -> list[str]:
    """The first occurrences of a rule, each completed when it is due."""
    found: list[str] = []
    one: Occurrence | None = first_occurrence(rule, 0, ms(start))
    while one is not None and len(found) < count:
        found.append(shown(one.due_ms))
        one = next_occurrence(one.recurrence, one.due_ms, one.due_ms)
    return found


def test_every_day_at_nine_is_at_nine_in_winter_and_in_summer() -> None:
    rule = Recurrence("0 9 * * *", "Europe/Berlin")
    expected = ["2026-03-28T08:00", "2026-03-29T07:00", "2026-03-30T07:00"]
    assert times(rule, "2026-03-28T00:00+01:00", 3) == expected
    assert times(Recurrence("0 9 * * 1-5", "Europe/Berlin"), "2026-10-23T12:00Z", 2) == [
        "2026-10-26T08:00",
        "2026-10-27T08:00",
    ]
    assert times(Recurrence("@daily"), "2026-01-01T12:00Z", 2) == ["2026-01-02T00:00", "2026-01-03T00:00"]


def test_a_time_that_the_clock_skips_is_due_when_it_has_been_changed() -> None:
    rule = Recurrence("30 2 * * *", "Europe/Berlin")
    # 2:30 does not exist on March 29: the clock goes from 1:59 to 3:00, which is 1:00 UTC.
    assert times(rule, "2026-03-28T12:00Z", 2) == ["2026-03-29T01:00", "2026-03-30T00:30"]
    assert times(Recurrence("*/30 * * * *", "Europe/Berlin"), "2026-03-29T00:20Z", 3) == [
        "2026-03-29T00:30",
        "2026-03-29T01:00",
        "2026-03-29T01:30",
    ]


def test_a_time_that_comes_twice_is_due_once_and_every_hour_is_every_hour() -> None:
    # From 2:00 to 2:59 on October 25 comes twice: from 0:00 UTC and from 1:00 UTC.
    rule = Recurrence("30 2 * * *", "Europe/Berlin")
    assert times(rule, "2026-10-24T12:00Z", 2) == ["2026-10-25T00:30", "2026-10-26T01:30"]
    hourly = Recurrence("30 * * * *", "Europe/Berlin")
    assert times(hourly, "2026-10-25T00:00Z", 3) == ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]


@pytest.mark.parametrize("policy", list(MissedPolicy))
def test_no_time_comes_before_the_last_one_when_the_clock_is_set_back(policy: MissedPolicy) -> None:
    rule = Recurrence("15,45 2 * * *", "Europe/Berlin", missed=policy)
    for minute in range(0, 180, 5):
        done_ms = ms("2026-10-24T23:30Z") + minute * MINUTE_MS
        following = next_occurrence(rule, done_ms, done_ms)
        assert following is not None
        assert following.due_ms > done_ms


@given(
    start_ms=strategies.integers(ms("2020-01-01T00:00Z"), ms("2037-01-01T00:00Z")),
    late_ms=strategies.integers(0, 3 * 24 * HOUR_MS),
    zone=strategies.sampled_from(
        ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu"]
    ),
    cron=strategies.sampled_from(["*/7 * * * *", "30 2 * * *", "0 */5 * * 1-5", "59 23 L * *", "15,45 1,2 * * *"]),
    policy=strategies.sampled_from(MissedPolicy),
)
@example(start_ms=ms("2026-04-04T15:20Z"), late_ms=0, zone="Australia/Lord_Howe", cron="30 2 * * *", policy="once")
def test_the_next_occurrence_is_later_than_the_last_and_follows_the_policy(
    start_ms: int, late_ms: int, zone: str, cron: str, policy: MissedPolicy
) -> None:
    rule = Recurrence(cron, zone, missed=MissedPolicy(policy))
    first = first_occurrence(rule, 0, start_ms)
    assert first.due_ms > start_ms
    done_ms = first.due_ms + late_ms
    following = next_occurrence(first.recurrence, first.due_ms, done_ms)
    assert following is not None
    assert following.due_ms > first.due_ms
    if rule.missed is MissedPolicy.SKIP:
        assert following.due_ms > done_ms
    after = next_occurrence(following.recurrence, following.due_ms, max(done_ms, following.due_ms))
    assert after is not None
    if rule.missed is MissedPolicy.ONCE:
        assert after.due_ms > done_ms


def test_an_interval_keeps_its_beat() -> None:
    rule = Recurrence(every_ms=5 * MINUTE_MS)
    first = first_occurrence(rule, 0, 1_000)
    assert first.due_ms == 1_000 + 5 * MINUTE_MS
    following = next_occurrence(first.recurrence, first.due_ms, first.due_ms + MINUTE_MS)
    assert following is not None
    assert following.due_ms == 1_000 + 10 * MINUTE_MS
    begins = first_occurrence(rule, 10 * MINUTE_MS, 1_000)
    assert begins.due_ms == 10 * MINUTE_MS
    assert first_occurrence(rule, 2_000, 4 * HOUR_MS).due_ms == 4 * HOUR_MS + 2_000


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MissedPolicy.SKIP, ["10:30"]),
        (MissedPolicy.ONCE, ["10:20", "10:30"]),
        (MissedPolicy.ALL, ["10:10", "10:20", "10:30"]),
    ],
)
def test_occurrences_that_pass_while_a_consumer_works_follow_the_policy(
    policy: MissedPolicy, expected: list[str]
) -> None:
    start_ms, done_ms = ms("2026-01-01T10:00Z"), ms("2026-01-01T10:25Z")
    for rule in (Recurrence("*/10 * * * *", missed=policy), Recurrence(every_ms=10 * MINUTE_MS, missed=policy)):
        one = first_occurrence(rule, start_ms, start_ms - 1)
        assert one.due_ms == start_ms
        found = []
        for _ in expected:
            following = next_occurrence(one.recurrence, one.due_ms, done_ms)
            assert following is not None
            one = following
            found.append(shown(one.due_ms)[-5:])
        assert found == expected


def test_all_missed_occurrences_have_a_limit() -> None:
    rule = Recurrence("* * * * *", missed=MissedPolicy.ALL)
    due_ms, now_ms = ms("2026-01-01T00:00Z"), ms("2026-02-01T00:00Z")
    found = []
    while (following := next_occurrence(rule, due_ms, now_ms)) is not None and following.due_ms <= now_ms:
        due_ms = following.due_ms
        found.append(due_ms)
    assert len(found) == MISSED_MAX
    assert found[-1] == now_ms
    assert all(later - earlier == MINUTE_MS for earlier, later in pairwise(found))


def test_an_occurrence_that_was_delivered_too_late_is_passed_over() -> None:
    due_ms = ms("2026-01-01T09:00Z")
    late_ms = due_ms + MISSED_AFTER_MS + 1
    daily = Recurrence("0 9 * * *")
    assert not was_missed(daily, due_ms, late_ms)  # the newest one: it is delivered, although late
    assert was_missed(daily, due_ms, due_ms + 24 * HOUR_MS)
    skip = daily._replace(missed=MissedPolicy.SKIP)
    assert was_missed(skip, due_ms, late_ms)
    assert not was_missed(skip, due_ms, late_ms - 1)
    assert not was_missed(daily._replace(missed=MissedPolicy.ALL), due_ms, due_ms + 90 * 24 * HOUR_MS)
    assert not was_missed(daily._replace(until_ms=due_ms + HOUR_MS), due_ms, due_ms + 90 * 24 * HOUR_MS)


def test_a_recurrence_ends_at_its_end_or_after_its_count() -> None:
    assert times(Recurrence("0 0 * * *", left=2), "2026-01-01T12:00Z", 9) == ["2026-01-02T00:00", "2026-01-03T00:00"]
    until = Recurrence("0 0 * * *", until_ms=ms("2026-01-03T00:00Z"))
    assert times(until, "2026-01-01T12:00Z", 9) == ["2026-01-02T00:00", "2026-01-03T00:00"]
    # Occurrences until the end were missed: the policy `once` delivers the newest of them.
    missed = next_occurrence(until, ms("2026-01-01T00:00Z"), ms("2026-01-09T00:00Z"))
    assert missed is not None
    assert shown(missed.due_ms) == "2026-01-03T00:00"
    assert next_occurrence(missed.recurrence, missed.due_ms, ms("2026-01-09T00:00Z")) is None


def test_times_end_with_the_calendar() -> None:
    last_ms = ms("9999-12-31T23:30Z")
    for rule in (Recurrence("0 * * * *"), Recurrence("0 9 * * *", "Europe/Berlin"), Recurrence(every_ms=HOUR_MS)):
        assert next_occurrence(rule, last_ms, last_ms) is None
        with pytest.raises(BadRecurrence, match="no occurrence"):
            first_occurrence(rule, 0, last_ms + 20 * MINUTE_MS)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Recurrence(), "either a cron expression or an interval"),
        (Recurrence("0 9 * * *", every_ms=5_000), "either a cron expression or an interval"),
        (Recurrence("0 9 * *"), "Wrong number of fields; write minute hour"),
        (Recurrence("61 9 * * *"), "Bad minute"),
        (Recurrence("0 0 30 2 *"), "Bad day-of-month"),
        (Recurrence("0 0 */30 2 MON#5"), "no occurrence"),
        (Recurrence("0 0 ß * *"), "ASCII"),
        (Recurrence("0 0 * * *\n"), "ASCII"),
        (Recurrence("0 " * CRON_CHARS_MAX), "at most 200 characters"),
        (Recurrence("@reboot"), "Wrong number of fields"),
        (Recurrence("0 9 * * *", "Mars/Olympus"), "time zone 'Mars/Olympus' is unknown; use a name such as"),
        (Recurrence("0 9 * * *", "Europe"), "unknown"),
        (Recurrence("0 9 * * *", "../../etc/passwd"), "unknown"),
        (Recurrence("0 9 * * *", "/etc/localtime"), "unknown"),
        (Recurrence("0 9 * * *", ""), "unknown"),
        (Recurrence("0 9 * * *", "x" * 10_000), "unknown"),
        (Recurrence(every_ms=999), "1000 to"),
        (Recurrence(every_ms=-5), "1000 to"),
        (Recurrence(every_ms=EVERY_MS_MAX + 1), "1000 to"),
        (Recurrence(every_ms=5_000, zone="Europe/Berlin"), "an interval has no time zone"),
        (Recurrence(every_ms=5_000, left=COUNT_MAX + 1), "number of occurrences"),
        (Recurrence(every_ms=5_000, left=-1), "number of occurrences"),
        (Recurrence(every_ms=5_000, until_ms=-1), "between 1970"),
        (Recurrence(every_ms=5_000, until_ms=5_999), "until its end"),
    ],
)
def test_wrong_recurrences_are_rejected(rule: Recurrence, message: str) -> None:
    with pytest.raises(BadRecurrence, match=message):
        first_occurrence(rule, 0, 1_000)


def test_a_start_outside_of_the_calendar_is_rejected() -> None:
    for start_ms in (-1, 2**60):
        with pytest.raises(BadDueTime):
            first_occurrence(Recurrence("* * * * *"), start_ms, 1_000)


@given(strategies.text(alphabet="0123456789*/,-#LWSUNMO @? ", max_size=40))
def test_any_text_is_a_cron_expression_or_an_error(text: str) -> None:
    try:
        first = first_occurrence(Recurrence(text), 0, 0)
    except BadRecurrence:
        return
    assert first.due_ms > 0


def test_a_recurrence_comes_back_from_its_text() -> None:
    for rule in (
        Recurrence("0 9 * * 1-5", "Europe/Berlin"),
        Recurrence(every_ms=5_000, missed=MissedPolicy.ALL, start_ms=3, until_ms=9, left=2),
    ):
        assert recurrence_from(rule.to_text()) == rule
    for text in ("", "{", "[]", "3", '{"since":1}', '{"missed":"never"}'):
        with pytest.raises(StoreCorrupt):
            recurrence_from(text)


def test_policies_have_names() -> None:
    assert missed_policy("") is MissedPolicy.ONCE
    assert missed_policy("all") is MissedPolicy.ALL
    with pytest.raises(BadRecurrence, match="'never' is not one of skip, once, all"):
        missed_policy("never")
