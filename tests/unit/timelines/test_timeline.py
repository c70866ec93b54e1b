"""Timelines: the limits of their settings, and the names that only the broker may use."""

from dataclasses import replace
from typing import Any

import pytest

from tidemill.timelines.core.errors import BadSetting, BadTimelineName, TimelineNotReady
from tidemill.timelines.core.timeline import (
    Alter,
    Create,
    DealerKind,
    MakeReady,
    TimelineSettings,
    TimelineState,
    after,
    check_chain,
    check_name,
    refuse_followed,
    refuse_kept,
    resource_of,
)

LIMITS = [
    ("lease_ms", 1, 604_800_000),
    ("max_attempts", 0, 1_000_000),
    ("window_ms", 1, 3_600_000),
    ("body_bytes_max", 0, 67_108_864),
]
BASE = TimelineSettings(dead_letter="topic:dead")


def _with(name: str, value: int) -> TimelineSettings:
    change: dict[str, Any] = {name: value}
    return replace(BASE, **change)


@pytest.mark.parametrize(("name", "low", "high"), LIMITS)
def test_a_setting_has_a_lowest_and_a_highest_value(name: str, low: int, high: int) -> None:
    for value in (low, high):
        _with(name, value).check()
    for value in (low - 1, high + 1):
        with pytest.raises(BadSetting, match=f"{name} = {value} must be between {low} and {high}"):
            _with(name, value).check()


def test_settings_are_checked_when_a_timeline_is_created_or_altered() -> None:
    wrong = TimelineSettings(window_ms=0)
    with pytest.raises(BadSetting):
        after(None, Create("t", wrong), 1)
    created = after(None, Create("t"), 1)
    assert (created.name, created.number, created.state) == ("t", 1, TimelineState.CREATING)
    with pytest.raises(TimelineNotReady):
        after(created, Alter("t", BASE), 2)
    ready = after(created, MakeReady("t"), 2)
    with pytest.raises(BadSetting):
        after(ready, Alter("t", wrong), 2)
    assert after(ready, Alter("t", BASE), 2).settings == BASE


def test_only_the_broker_changes_timelines_of_scheduled_records() -> None:
    for name in ("__schedule.orders", "__waiting.orders"):
        with pytest.raises(BadTimelineName):
            refuse_kept(name)
    refuse_kept("orders")
    with pytest.raises(BadTimelineName, match="scheduled records of 'orders'"):
        refuse_followed("__waiting.orders")
    refuse_followed("__schedule.orders")
    refuse_followed("orders")


@pytest.mark.parametrize("name", ["a", "...", "A-z_0.9", "n" * 249])
def test_names_of_topics_are_names_of_timelines(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "n" * 250, "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(BadTimelineName):
        check_name(name)


def test_dead_letters_do_not_lead_back() -> None:
    first = after(None, Create("first", TimelineSettings(dead_letter="timeline:second")), 1)
    check_chain("second", TimelineSettings(dead_letter="timeline:third"), {"first": first})
    with pytest.raises(BadSetting, match="leads back to 'second'"):
        check_chain("second", TimelineSettings(dead_letter="timeline:first"), {"first": first})


def test_settings_are_read_as_they_were_written() -> None:
    settings = TimelineSettings(5, 6, "topic:dead", 7, 8, DealerKind.RANGES)
    assert TimelineSettings.from_json(settings.to_json()) == settings
    assert TimelineSettings.from_json('{"lease_ms": 5, "later": 1}') == TimelineSettings(5)


def test_attempts_end_only_where_they_are_limited() -> None:
    assert not TimelineSettings().exhausted(1_000)
    assert [TimelineSettings(max_attempts=2).exhausted(attempts) for attempts in (1, 2, 3)] == [False, True, True]


def test_settings_are_stored_as_json_with_their_defaults() -> None:
    assert TimelineSettings().to_json() == (
        '{"body_bytes_max": 1048576, "dead_letter": "", "dealer": "racks", "failing_percent": 80, '
        '"lease_ms": 30000, "max_attempts": 0, "window_ms": 10000}'
    )
    assert TimelineSettings.from_json("{}") == TimelineSettings()


@pytest.mark.parametrize(
    ("timeline", "topic"),
    [("orders", "orders"), ("__schedule.orders", "orders"), ("__waiting.orders", "orders"), ("a.__waiting.b",) * 2],
)
def test_a_timeline_of_a_topic_is_protected_by_the_acls_of_the_topic(timeline: str, topic: str) -> None:
    assert resource_of(timeline) == topic
