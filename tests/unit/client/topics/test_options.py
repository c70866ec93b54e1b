"""The options of a producer and a consumer, and the values that they refuse."""

from typing import Any, get_type_hints

import pytest

from tidemill.client.kafka.errors import ClientError, InvalidClientOption
from tidemill.client.topics.options import (
    ConsumerKeywords,
    ConsumerOptions,
    ProducerKeywords,
    ProducerOptions,
    consumer_options,
    producer_options,
)
from tidemill.model.errors import InvalidTopic


def of_producer(**given: Any) -> ProducerOptions:
    return producer_options("orders", given)  # type: ignore[arg-type]  # what is refused is what is tested


def of_consumer(**given: Any) -> ConsumerOptions:
    return consumer_options("mailer", ["orders"], given)  # type: ignore[arg-type]  # the same


@pytest.mark.parametrize(
    ("keywords", "options"), [(ProducerKeywords, ProducerOptions), (ConsumerKeywords, ConsumerOptions)]
)
def test_the_keywords_are_the_options(keywords: type, options: type) -> None:
    assert get_type_hints(keywords) == get_type_hints(options)


def test_options_that_are_not_given_have_defaults() -> None:
    assert of_producer(acks=1, linger_ms=0, settings={"retention.ms": "1"}) == ProducerOptions(
        acks=1, linger_ms=0, settings={"retention.ms": "1"}
    )
    assert of_consumer(reset="latest", rack="north") == ConsumerOptions(reset="latest", rack="north")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="a consumer has no option 'poll_record'; did you mean poll_records"):
        of_consumer(poll_record=1)
    with pytest.raises(TypeError, match="a producer has no option 'lingerms'; did you mean linger_ms"):
        of_producer(lingerms=1)
    with pytest.raises(TypeError, match="a producer has no option 'x'; use one of partitions, replication_factor"):
        of_producer(x=1)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"linger_ms": "5"}, "linger_ms='5' is not a whole number"),
        ({"linger_ms": 0.5}, "linger_ms=0.5 is not a whole number"),
        ({"buffer_records": True}, "buffer_records=True is not a whole number"),
        ({"create": "no"}, "create='no' is not True or False"),
        ({"partitioner": None}, "partitioner=None is not a str"),
    ],
)
def test_a_value_of_another_kind_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(TypeError, match=line):
        of_producer(**given)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"acks": 2}, "acks=2 is invalid; use 'all' or 1"),
        ({"partitioner": "dice"}, "partitioner='dice' is invalid; use one of"),
        ({"linger_ms": -1}, "linger_ms=-1 must be at least 0"),
        ({"call_records": 0}, "call_records=0 must be at least 1"),
    ],
)
def test_a_value_out_of_its_range_is_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidClientOption, match=line):
        of_producer(**given)


def test_the_name_is_checked_before_other_options() -> None:
    with pytest.raises(ClientError, match="a producer needs a topic"):
        producer_options("", {})
    with pytest.raises(ClientError, match="a consumer needs a group"):
        consumer_options("", ["orders"], {})
    with pytest.raises(InvalidTopic, match="'a b' is not a topic name"):
        producer_options("a b", {})
