"""Errors are found wherever an answer has them."""

from typing import Any

import pytest

from tidemill.wire.kafka.error_codes import refusals
from tidemill.wire.kafka.schema import build, response_class, response_module

CREATE_TOPICS, OFFSET_COMMIT, HEARTBEAT, API_VERSIONS = 19, 8, 12, 18


def part(key: int, version: int, kind: str, /, **given: Any) -> Any:
    return build(getattr(response_module(key, version), kind), given)


def answer(key: int, version: int, **given: Any) -> Any:
    return build(response_class(key, version), given)


@pytest.mark.parametrize("version", [2, 7])
def test_next_to_a_topic(version: int) -> None:
    topics = tuple(
        part(CREATE_TOPICS, version, "CreatableTopicResult", name="t", error_code=code) for code in (0, 36, 17)
    )
    assert list(refusals(answer(CREATE_TOPICS, version, topics=topics))) == [36, 17]


def test_next_to_a_partition() -> None:
    partitions = tuple(part(OFFSET_COMMIT, 9, "OffsetCommitResponsePartition", error_code=code) for code in (12, 0, 12))
    topic = part(OFFSET_COMMIT, 9, "OffsetCommitResponseTopic", name="t", partitions=partitions)
    assert list(refusals(answer(OFFSET_COMMIT, 9, topics=(topic,)))) == [12, 12]


def test_at_the_top_and_nowhere() -> None:
    assert list(refusals(answer(HEARTBEAT, 4, error_code=27))) == [27]
    assert list(refusals(answer(HEARTBEAT, 4))) == []
    assert list(refusals(answer(API_VERSIONS, 3, error_code=35))) == [35]
