"""Arguments and errors of calls between brokers come back as they were."""

import json

import pytest

from tidemill.timelines.core.errors import StaleLease, StoreUnavailable
from tidemill.timelines.core.message import EVERYTHING, MessageStatus, Selection
from tidemill.timelines.core.timeline import Alter, Create, Delete, MakeReady, Purge, Step, TimelineSettings
from tidemill.timelines.replicated.core.calls import error_from, selection_from, selection_row, step_from, step_row


@pytest.mark.parametrize(
    "selection",
    [
        EVERYTHING,
        Selection(5, 9, MessageStatus.LEASED, ((0, 3), (7, 7)), ("a", "ä")),
        Selection(status=MessageStatus.WAITING, buckets=(), ids=()),
    ],
)
def test_a_selection_comes_back(selection: Selection) -> None:
    assert selection_from(json.loads(json.dumps(selection_row(selection)))) == selection


@pytest.mark.parametrize(
    "step",
    [
        Create("a", TimelineSettings(lease_ms=5)),
        Alter("a", TimelineSettings(max_attempts=2, dead_letter="timeline:b")),
        MakeReady("a"),
        Delete("a"),
        Purge("a", 7),
    ],
)
def test_a_step_comes_back(step: Step) -> None:
    assert step_from(json.loads(json.dumps(step_row(step)))) == step


def test_an_unknown_step_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a step"):
        step_from(["Explode", "a"])


def test_an_error_keeps_its_class_and_an_unknown_one_is_an_outage() -> None:
    assert type(error_from("StaleLease", "the lease has ended")) is StaleLease
    assert type(error_from("NotLeaderOrFollower", "moving")) is StoreUnavailable
    assert str(error_from("StaleLease", "the lease has ended")) == "the lease has ended"
