"""Positions in the notation of Spark: which offsets are asked for, and where a query starts."""

import pytest

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.positions import EARLIEST, parse_offsets, parse_time, parse_times

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_positions_ask_and_place() -> None:
    position = parse_offsets("startingOffsets", '{"a": {"0": 5, "1": -2}, "$ids": {"a": "..."}}')
    assert position.questions([A0, A1]) == {A1: EARLIEST}
    assert position.place([A0, A1], {A1: 3}, lambda _: 99) == {A0: 5, A1: 3}
    assert parse_time("startingTimestamp", "7").questions([A0]) == {A0: 7}
    assert parse_times("startingOffsetsByTimestamp", '{"a": {"0": 7}}').place([A0], {A0: -1}, lambda _: 99) == {A0: 99}


def test_every_partition_has_to_be_named_and_no_other() -> None:
    position = parse_offsets("startingOffsets", '{"a": {"0": 5}}')
    with pytest.raises(WrongOption, match="startingOffsets: a-1 is missing"):
        position.questions([A0, A1])
    with pytest.raises(WrongOption, match="startingOffsets: a-0 is not a partition that the query reads"):
        position.questions([])


def test_minus_one_is_the_end_and_minus_two_the_start() -> None:
    """The numbers of Spark's kafka source and of Kafka's ListOffsets."""
    position = parse_offsets("startingOffsets", '{"a": {"0": -1, "1": -2}}')
    assert position.questions([A0, A1]) == {A0: -1, A1: -2}
    with pytest.raises(WrongOption):
        parse_offsets("startingOffsets", '{"a": {"0": -3}}')
