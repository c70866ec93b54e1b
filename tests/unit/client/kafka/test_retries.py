"""How long a call is retried."""

import pytest

from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost
from tidemill.client.kafka.options import ClientOptions
from tidemill.client.kafka.retries import UNKNOWN_TOPIC_MS, pause_ms, prefixed
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.model.errors import (
    CorruptMessage,
    MessageTooLarge,
    NotLeaderOrFollower,
    TidemillError,
    UnknownTopicOrPartition,
)

OPTIONS = ClientOptions((BrokerEndpoint("a", 1),), connect_timeout_ms=1000, api_timeout_ms=60_000)


def pause(error: TidemillError, waited_ms: int = 0, attempt: int = 0, *, contacted: bool = True) -> int | None:
    return pause_ms(error, attempt=attempt, waited_ms=waited_ms, contacted=contacted, options=OPTIONS)


@pytest.mark.parametrize("error", [MessageTooLarge(), CorruptMessage(), AuthenticationFailed()])
def test_errors_that_will_not_pass_are_final(error: TidemillError) -> None:
    assert pause(error) is None


@pytest.mark.parametrize("error", [NotLeaderOrFollower(), ConnectionLost(), BrokerUnreachable()])
def test_errors_that_may_pass_are_waited_for_as_long_as_a_call_may_take(error: TidemillError) -> None:
    assert pause(error, 59_999) == 1
    assert pause(error, 60_000) is None


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause(NotLeaderOrFollower(), 0, attempt) for attempt in range(6)]
    assert pauses == [100, 200, 400, 800, 1000, 1000]
    assert pause(NotLeaderOrFollower(), 0, 10_000) == 1000


def test_an_address_without_a_server_gets_the_connect_timeout() -> None:
    assert pause(BrokerUnreachable(), 999, contacted=False) == 1
    assert pause(BrokerUnreachable(), 1000, contacted=False) is None


def test_an_unknown_topic_gets_a_moment() -> None:
    assert pause(UnknownTopicOrPartition(), UNKNOWN_TOPIC_MS - 1) == 1
    assert pause(UnknownTopicOrPartition(), UNKNOWN_TOPIC_MS) is None


def test_an_error_names_the_operation() -> None:
    error = prefixed("produce", prefixed("t-0", MessageTooLarge("11 bytes")))
    assert isinstance(error, MessageTooLarge)
    assert str(error) == "produce: t-0: 11 bytes"
