"""Commands on topics are counted by operation, and their errors by class."""

from pathlib import Path

import pytest
from tests.support.broker_worlds import running

from tidemill.broker.topic_commands import TopicCommand, TopicCommands
from tidemill.model.errors import InvalidPartitions, TopicAlreadyExists, UnknownTopicOrPartition
from tidemill.model.topics import GROUP_OFFSETS


def counts(commands: TopicCommands) -> dict[tuple[str, ...], float]:
    return {
        (each.name.removeprefix("tidemill_topic_"), *dict(each.labels).values()): each.value
        for each in commands.readings()
    }


async def test_commands_of_clients_are_counted_with_their_errors(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        topics = broker.topics
        await topics.create("orders")
        with pytest.raises(TopicAlreadyExists):
            await topics.create("orders")
        await topics.add_partitions("orders", 3)
        with pytest.raises(InvalidPartitions):
            await topics.add_partitions("orders", 2)
        await topics.alter("orders", {"retention.ms": "5"})
        await topics.delete("orders")
        with pytest.raises(UnknownTopicOrPartition):
            await topics.delete("orders")
        assert counts(topics.commands) == {
            ("commands", "create"): 2,
            ("commands", "delete"): 2,
            ("commands", "add_partitions"): 2,
            ("commands", "alter"): 1,
            ("command_errors", "create", "TopicAlreadyExists"): 1,
            ("command_errors", "add_partitions", "InvalidPartitions"): 1,
            ("command_errors", "delete", "UnknownTopicOrPartition"): 1,
        }


async def test_validation_and_internal_topics_are_not_counted(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders", validate_only=True)
        await broker.internal.ensure(GROUP_OFFSETS)
        assert set(counts(broker.topics.commands).values()) == {0}


def test_an_unexpected_error_has_one_name() -> None:
    commands = TopicCommands()
    with pytest.raises(ZeroDivisionError), commands.counted(TopicCommand.ALTER):
        raise ZeroDivisionError
    assert counts(commands)["command_errors", "alter", "UnknownServerError"] == 1
