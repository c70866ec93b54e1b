"""Offsets of groups through the Kafka server, in every version."""

from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from tests.support.kafka_server import request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected
from tests.unit.servers.kafka.groups_client import COMMIT, FETCH, FORGET, commit_fields, fetch_fields, found, member

from tidemill.model.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    OffsetMetadataTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidemill.servers.kafka.api import Call

pytestmark = pytest.mark.event_loop("uvloop")


@pytest.mark.parametrize("version", VERSIONS[COMMIT])
async def test_commits(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, server):
        topic = await server.broker.topics.create("t", partitions=2)
        name: Any = topic.topic_id if version >= 10 else "t"
        fields = commit_fields(version, name, (0, 5, "note"), (1, 6, None), (2, 7, ""))
        (reported,) = (await client.ask(COMMIT, version, **fields)).topics
        assert [(part.partition_index, part.error_code) for part in reported.partitions] == [
            (0, 0), (1, 0), (2, UnknownTopicOrPartition.code),
        ]  # fmt: skip
        (reported,) = (await client.ask(COMMIT, version, **commit_fields(version, name, (0, 9, "x" * 4097)))).topics
        assert reported.partitions[0].error_code == OffsetMetadataTooLarge.code
        unknown: Any = uuid4() if version >= 10 else "nowhere"
        (reported,) = (await client.ask(COMMIT, version, **commit_fields(version, unknown, (0, 9, "")))).topics
        assert reported.partitions[0].error_code == (UnknownTopicId if version >= 10 else UnknownTopicOrPartition).code
        stale = commit_fields(version, name, (0, 9, ""), generation_id_or_member_epoch=4, member_id="stranger")
        (reported,) = (await client.ask(COMMIT, version, **stale)).topics
        assert reported.partitions[0].error_code == IllegalGeneration.code
        assert found(9, await client.ask(FETCH, 9, **fetch_fields(9, "t", 0, 1))) == (
            0, {0: (5, "note", 0), 1: (6, "", 0)},
        )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS[FETCH])
async def test_fetches(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, server):
        topic = await server.broker.topics.create("t", partitions=3)
        name: Any = topic.topic_id if version >= 10 else "t"
        await client.ask(COMMIT, 9, **commit_fields(9, "t", (0, 5, "note"), (1, 6, None)))
        answer = await client.ask(FETCH, version, **fetch_fields(version, name, 0, 2))
        assert found(version, answer) == (0, {0: (5, "note", 0), 2: (-1, "", 0)})
        group = answer.groups[0] if version >= 8 else answer
        if version >= 5:
            assert group.topics[0].partitions[0].committed_leader_epoch == 3
        answer = await client.ask(FETCH, version, **fetch_fields(version, name, 0, group="unknown"))
        assert found(version, answer) == (0, {0: (-1, "", 0)}), "an unknown group is no error"
        if version >= 2:
            answer = await client.ask(FETCH, version, **fetch_fields(version, None))
            assert found(version, answer) == (0, {0: (5, "note", 0), 1: (6, "", 0)})
        answer = await client.ask(FETCH, version, **fetch_fields(version, name, 0, group=""))
        error, parts = found(version, answer)
        on_partition = version == 1
        assert error == (0 if on_partition else InvalidGroupId.code)
        assert parts == {0: (-1, "", InvalidGroupId.code if on_partition else 0)}
        if version >= 10:
            answer = await client.ask(FETCH, version, **fetch_fields(version, uuid4(), 0))
            assert found(version, answer) == (0, {0: (-1, "", UnknownTopicId.code)})


async def test_offsets_are_deleted(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        for name in "tu":
            await server.broker.topics.create(name, partitions=1)

        async def forget(group: str) -> Any:
            topics = tuple(
                request_part(
                    FORGET,
                    0,
                    "OffsetDeleteRequestTopic",
                    name=name,
                    partitions=(request_part(FORGET, 0, "OffsetDeleteRequestPartition", partition_index=0),),
                )
                for name in "tu"
            )
            return await client.ask(FORGET, 0, group_id=group, topics=topics)

        assert (await forget("g")).error_code == GroupIdNotFound.code
        mine = await member(client, "g")
        for name in "tu":
            more = {"generation_id_or_member_epoch": 1, "member_id": mine}
            await client.ask(COMMIT, 9, **commit_fields(9, name, (0, 5, ""), **more))
        with patch.object(Call, "changed") as audited:
            reported = await forget("g")
        assert [topic.partitions[0].error_code for topic in reported.topics] == [GroupSubscribedToTopic.code, 0]
        audited.assert_called_once_with("offsets_deleted", group="g", topics=["u"])
        assert found(9, await client.ask(FETCH, 9, **fetch_fields(9, "u", 0)))[1][0][0] == -1
        await server.broker.topics.delete("t")
        assert found(9, await client.ask(FETCH, 9, **fetch_fields(9, None))) == (0, {})
