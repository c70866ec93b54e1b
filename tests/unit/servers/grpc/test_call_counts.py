"""Calls are counted with the error that the client got, and only with names that this broker knows."""

import asyncio

import pytest

from tidemill.broker.metrics import ApiTraffic
from tidemill.servers.grpc.call_counts import counted, known_error, method_name


def test_an_outcome_and_an_unexpected_error_are_counted() -> None:
    traffic = ApiTraffic()
    with counted(traffic):
        pass
    with pytest.raises(ZeroDivisionError), counted(traffic):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="aborted"):
        refuse(traffic)
    assert traffic.duration.count == 3
    assert traffic.errors == {"UnknownServerError": 1, "StaleLease": 1}


def refuse(traffic: ApiTraffic) -> None:
    with counted(traffic) as outcome:
        outcome.error = "StaleLease"
        raise ValueError("aborted")


def test_a_client_that_leaves_causes_no_error() -> None:
    traffic = ApiTraffic()
    with pytest.raises(asyncio.CancelledError), counted(traffic):
        raise asyncio.CancelledError
    assert (traffic.duration.count, traffic.errors) == (1, {})


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("UnknownTimeline", "UnknownTimeline"),
        ("TopicAlreadyExists", "TopicAlreadyExists"),
        ("Invented by a peer", "UnknownServerError"),
        (None, "UnknownServerError"),
    ],
)
def test_names_of_errors_are_bounded(name: object, label: str) -> None:
    assert known_error(name) == label


def test_names_of_methods() -> None:
    assert method_name("/tidemill.v1.BrokerService/Produce") == "BrokerService/Produce"
