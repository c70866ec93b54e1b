"""Headers of records that recur, that move others, and that other systems use."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.errors import InvalidRecord
from tidemill.model.timeline_errors import ClockInDoubt
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.scheduling.core import batch_split
from tidemill.scheduling.core.batch_split import BatchSplit, split_batch
from tidemill.scheduling.core.delivery_headers import (
    ALIASES,
    NATS_SCHEDULE,
    SPECIAL,
    TEXT_ALIASES,
    TEXT_BYTES_MAX,
    accepted_aliases,
)
from tidemill.timelines.core.recurrence import MissedPolicy, Recurrence, recurrence_from

NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00Z
HOUR_MS = 3_600_000
ALL = frozenset({*ALIASES, *TEXT_ALIASES})
Given = dict[str, str]


def split(*records: Given, now_ms: int | None = NOW_MS, aliases: Collection[str] = ()) -> BatchSplit | None:
    new = [NewRecord(b"k", b"v", tuple((name, text.encode()) for name, text in one.items()), NOW_MS) for one in records]
    batch = build_batch(new)
    return split_batch(batch, read_header(batch), 3, now_ms, aliases, "meals")


def planned(*records: Given, aliases: Collection[str] = ()) -> BatchSplit:
    plan = split(*records, aliases=aliases)
    assert plan is not None
    return plan


def test_a_record_recurs() -> None:
    plan = planned(
        {"tidemill-cron": "0 9 * * 1-5", "tidemill-zone": "Europe/Berlin", "tidemill-schedule-id": "daily"},
        {"tidemill-every-ms": "60000", "tidemill-missed": "all", "tidemill-count": "5"},
        {"tidemill-every-ms": "60000", "tidemill-delay-ms": "5", "tidemill-until": str(NOW_MS + HOUR_MS)},
        {"tidemill-cron": "@hourly", "tidemill-deliver-at": str(NOW_MS + HOUR_MS)},
    )
    daily, counted, delayed, hourly = plan.waiting
    # January 15, 2027 is a Friday, and 9:00 in Berlin is now.
    assert (daily.id, daily.due_ms) == ("daily", NOW_MS + 72 * HOUR_MS)
    assert recurrence_from(daily.rule) == Recurrence("0 9 * * 1-5", "Europe/Berlin")
    assert counted.due_ms == NOW_MS + 60_000
    rule = recurrence_from(counted.rule)
    assert (rule.every_ms, rule.missed, rule.left) == (60_000, MissedPolicy.ALL, 5)
    assert (delayed.due_ms, recurrence_from(delayed.rule).until_ms) == (NOW_MS + 5, NOW_MS + HOUR_MS)
    assert hourly.due_ms == NOW_MS + HOUR_MS
    assert plan.taken == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"tidemill-cron": "0 9 30 2 *"}, "Bad day-of-month"),
        ({"tidemill-cron": ""}, "either a cron expression or an interval"),
        ({"tidemill-cron": "x" * (TEXT_BYTES_MAX + 1)}, "more than 300 bytes"),
        ({"tidemill-cron": "0 9 * * *", "tidemill-zone": "Nowhere"}, "is unknown"),
        ({"tidemill-cron": "0 9 * * *", "tidemill-every-ms": "5000"}, "either a cron expression or an interval"),
        ({"tidemill-every-ms": "5m"}, "tidemill-every-ms is not a number of milliseconds"),
        ({"tidemill-every-ms": "10"}, "an interval is 1000 to"),
        ({"tidemill-every-ms": "5000", "tidemill-missed": "never"}, "not one of skip, once, all"),
        ({"tidemill-every-ms": "5000", "tidemill-count": "-1"}, "tidemill-count is not a number"),
        ({"tidemill-every-ms": "5000", "tidemill-until": "1"}, "until its end"),
        ({"tidemill-move-to": "5"}, "names the scheduled record in tidemill-schedule-id"),
        ({"tidemill-move-to": "soon", "tidemill-schedule-id": "a"}, "tidemill-move-to is not a number"),
        ({"tidemill-move-to": "9" * 18, "tidemill-schedule-id": "a"}, "beyond the year 9999"),
        ({"tidemill-move-to": "5", "tidemill-schedule-id": ""}, "1 to 200 printable characters"),
    ],
)
def test_wrong_headers_name_the_record_at_fault(headers: Given, reason: str) -> None:
    with pytest.raises(InvalidRecord, match=reason) as caught:
        split({}, headers)
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_a_recurrence_needs_a_trusted_clock_and_a_move_does_not() -> None:
    for headers in ({"tidemill-cron": "0 9 * * *"}, {"tidemill-every-ms": "5000", "tidemill-deliver-at": "5"}):
        with pytest.raises(ClockInDoubt):
            split(headers, now_ms=None)
    plan = split({"tidemill-move-to": "5", "tidemill-schedule-id": "a"}, now_ms=None)
    assert plan is not None
    assert [tuple(one) for one in plan.early_moves] == [("a", 5)]


def test_moves_count_in_the_order_of_the_batch() -> None:
    later: Given = {"tidemill-deliver-at": "9", "tidemill-schedule-id": "tea"}
    move: Given = {"tidemill-move-to": "7", "tidemill-schedule-id": "tea"}
    cancel: Given = {"tidemill-cancel": "tea"}
    for records, early, late, waits in (
        ((move,), 1, 0, 0),
        ((later, move), 0, 1, 1),
        ((move, later), 1, 0, 1),
        ((cancel, move), 0, 0, 0),
        ((later, move, cancel), 0, 0, 0),
        ((cancel, later, move), 0, 1, 1),
    ):
        plan = planned(*records)
        assert (len(plan.early_moves), len(plan.late_moves), len(plan.waiting)) == (early, late, waits)
        assert plan.taken == set(range(len(records)))


def test_records_that_recur_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_split, "RECURRING_MAX", 2)
    recurs: Given = {"tidemill-cron": "0 9 * * *"}
    assert len(planned(recurs, recurs, {"tidemill-delay-ms": "1"}).waiting) == 3
    with pytest.raises(InvalidRecord, match="may contain 2 records that recur"):
        split(recurs, recurs, recurs)


@pytest.mark.parametrize(
    ("name", "value", "due_ms"),
    [
        ("__STARTDELIVERTIME", str(NOW_MS + 5), NOW_MS + 5),
        ("__kafka_delay_timestamp", str(NOW_MS + 5), NOW_MS + 5),
        ("x-delay", "1500", NOW_MS + 1_500),
        ("Nats-Schedule", "@at 2027-01-15T09:00:00Z", NOW_MS + HOUR_MS),
        ("Nats-Schedule", "@at 2027-01-15T09:00:00.25+00:00", NOW_MS + HOUR_MS + 250),
        ("Nats-Schedule", "@every 1h30m", NOW_MS + 90 * 60_000),
        ("Nats-Schedule", "@hourly", NOW_MS + HOUR_MS),
        ("Nats-Schedule", "0 30 9 * * *", NOW_MS + 90 * 60_000),
        ("DELAY", "1500", NOW_MS + 1_500),
        ("DELAY", "1m1s", NOW_MS + 61_000),
        ("AT", str(NOW_MS + 5), NOW_MS + 5),
        ("AT", "2027-01-15T11:00:00+02:00", NOW_MS + HOUR_MS),
        ("SCHEDULE", "0 10 * * *", NOW_MS + 2 * HOUR_MS),
    ],
)
def test_headers_of_other_systems_count_where_they_are_accepted(name: str, value: str, due_ms: int) -> None:
    assert split({name: value}) is None
    assert split({name: value}, aliases=ALL - {name}) is None
    (waiting,) = planned({name: value}, aliases={name}).waiting
    assert waiting.due_ms == due_ms
    recurs = name == "SCHEDULE" or (name == "Nats-Schedule" and not value.startswith("@at"))
    assert bool(waiting.rule) == recurs


@pytest.mark.parametrize("name", ["DELAY", "AT"])
def test_a_destination_is_the_topic_itself(name: str) -> None:
    (waiting,) = planned({name: "5", "DESTINATION_TOPIC": "meals"}, aliases=ALL).waiting
    assert waiting.due_ms == (5 if name == "AT" else NOW_MS + 5)
    with pytest.raises(InvalidRecord, match="DESTINATION_TOPIC names 'parcels'; send the record to that topic"):
        split({name: "5", "DESTINATION_TOPIC": "parcels"}, aliases=ALL)
    assert split({"DESTINATION_TOPIC": "parcels"}, aliases=ALL) is None


def test_our_own_headers_win_over_those_of_other_systems() -> None:
    given = {"x-delay": "never", "tidemill-delay-ms": "7"}
    (waiting,) = planned(given, aliases=ALL).waiting
    assert waiting.due_ms == NOW_MS + 7


def test_a_zone_of_nats_belongs_to_a_cron_expression() -> None:
    zoned = {"Nats-Schedule": "0 0 9 * * *", "Nats-Schedule-Time-Zone": "America/New_York"}
    (waiting,) = planned(zoned, aliases={NATS_SCHEDULE}).waiting
    assert waiting.due_ms == NOW_MS + 6 * HOUR_MS
    assert recurrence_from(waiting.rule).zone == "America/New_York"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-delay", "-5"),
        ("x-delay", "5.5"),
        ("__STARTDELIVERTIME", "tomorrow"),
        ("__kafka_delay_timestamp", "9" * 18),
        ("Nats-Schedule", "@at tomorrow"),
        ("Nats-Schedule", "@at 2027-01-15T09:00:00"),
        ("Nats-Schedule", "@at 1600-01-01T00:00:00Z"),
        ("Nats-Schedule", "@every 5 minutes"),
        ("Nats-Schedule", "@every 1ms"),
        ("Nats-Schedule", "@reboot"),
        ("Nats-Schedule", ""),
        ("DELAY", "-5"),
        ("DELAY", ""),
        ("DELAY", "9" * 19),
        ("AT", "2027-01-15T09:00:00"),
        ("AT", "²"),
        ("SCHEDULE", "61 9 * * *"),
        ("SCHEDULE", ""),
    ],
)
def test_wrong_values_of_other_systems_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidRecord):
        split({name: value}, aliases=ALL)


@given(
    st.dictionaries(
        st.sampled_from(sorted({*SPECIAL, *ALL, "tidemill-zone", "tidemill-missed", "tidemill-until"})),
        st.text(alphabet="0123456789@aehmrstvy *-/:TZ.+", max_size=25),
        max_size=4,
    )
)
def test_any_headers_are_a_plan_or_an_invalid_record(headers: Given) -> None:
    try:
        plan = split(headers, aliases=ALL)
    except InvalidRecord:
        return
    assert (plan is None) == (not headers.keys() & {*SPECIAL, *ALL})


def test_a_topic_accepts_what_it_lists() -> None:
    assert accepted_aliases(("none",)) == frozenset()
    assert accepted_aliases(("none", "x-delay")) == {"x-delay"}
