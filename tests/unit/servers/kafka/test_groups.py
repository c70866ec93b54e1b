"""The group APIs through the door, in every version, answers decoded by kio."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.kafka_server import RawClient, kafka_door, request_part

from tidemill.model.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.listener import KafkaServer

pytestmark = pytest.mark.event_loop("uvloop")

VERSIONS = {api.key: range(api.versions[0], api.versions[1] + 1) for api in standard_table().listed()}
JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
COMMIT, FETCH, FORGET, PULSE, DESCRIBE_CONSUMERS = 8, 9, 47, 68, 69
SESSION = timedelta(seconds=10)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[RawClient, KafkaServer]]:
    async with kafka_door(folder) as door:
        client = await RawClient.connect(door)
        yield client, door
        await client.close()


async def join(client: RawClient, version: int, group: str, member_id: str = "", **more: Any) -> Any:
    protocol = request_part(JOIN, version, "JoinGroupRequestProtocol", name="range", metadata=SUBSCRIPTION)
    return await client.ask(
        JOIN,
        version,
        **{
            "group_id": group,
            "session_timeout": SESSION,
            "rebalance_timeout": SESSION,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": (protocol,),
            **more,
        },
    )


async def member(client: RawClient, group: str) -> str:
    """The only member of a stable group in generation 1."""
    first = await join(client, 9, group)
    joined = await join(client, 9, group, first.member_id)
    assignment = request_part(SYNC, 5, "SyncGroupRequestAssignment", member_id=joined.member_id, assignment=b"all")
    await client.ask(
        SYNC, 5, group_id=group, generation_id=1, member_id=joined.member_id, assignments=(assignment,),
        protocol_type="consumer", protocol_name="range",
    )  # fmt: skip
    return str(joined.member_id)


@pytest.mark.parametrize("version", VERSIONS[JOIN])
async def test_a_life_in_a_classic_group(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _door):
        told = await join(client, version, "g")
        if version >= 4:
            assert told.error_code == MemberIdRequired.code
            assert (told.generation_id, told.leader, told.members) == (-1, "", ())
            told = await join(client, version, "g", told.member_id)
        assert (told.error_code, told.generation_id, told.protocol_name) == (0, 1, "range")
        assert told.leader == told.member_id
        assert [(each.member_id, each.metadata) for each in told.members] == [(told.member_id, SUBSCRIPTION)]
        for sync in VERSIONS[SYNC]:
            blob = request_part(
                SYNC, sync, "SyncGroupRequestAssignment", member_id=told.member_id, assignment=b"\0\0mine"
            )
            named = {"protocol_type": "consumer", "protocol_name": "range"} if sync >= 5 else {}
            synced = await client.ask(
                SYNC, sync, group_id="g", generation_id=1, member_id=told.member_id, assignments=(blob,), **named
            )
            assert (synced.error_code, synced.assignment) == (0, b"\0\0mine")
        for beat in VERSIONS[BEAT]:
            alive = await client.ask(BEAT, beat, group_id="g", generation_id=1, member_id=told.member_id)
            assert alive.error_code == 0
            stale = await client.ask(BEAT, beat, group_id="g", generation_id=7, member_id=told.member_id)
            assert stale.error_code == IllegalGeneration.code


@pytest.mark.parametrize("version", VERSIONS[JOIN])
async def test_refused_joins(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _door):
        for more, error in (
            ({"group": ""}, InvalidGroupId),
            ({"session_timeout": timedelta(milliseconds=5_999)}, InvalidSessionTimeout),
            ({"member_id": "stranger"}, UnknownMemberId),
        ):
            told = await join(client, version, **{"group": "g", **more})  # type: ignore[arg-type]  # as listed
            assert told.error_code == error.code
            assert told.generation_id == -1
            assert told.member_id == more.get("member_id", "")
            assert told.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", VERSIONS[LEAVE])
async def test_leaving(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _):
        mine = await member(client, "g")
        if version < 3:
            told = await client.ask(LEAVE, version, group_id="g", member_id="stranger")
            assert told.error_code == UnknownMemberId.code
            told = await client.ask(LEAVE, version, group_id="g", member_id=mine)
            assert told.error_code == 0
            return
        members = tuple(
            request_part(LEAVE, version, "MemberIdentity", member_id=each, group_instance_id=None)
            for each in ("stranger", mine)
        )
        told = await client.ask(LEAVE, version, group_id="g", members=members)
        assert told.error_code == 0
        assert [(each.member_id, each.error_code) for each in told.members] == [
            ("stranger", UnknownMemberId.code),
            (mine, 0),
        ]


async def test_descriptions_and_lists(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _door):
        mine = await member(client, "g")
        for version in VERSIONS[DESCRIBE]:
            told = await client.ask(
                DESCRIBE, version, groups=("g", "nobody"), include_authorized_operations=version % 2 == 0
            )
            group, nobody = told.groups
            assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
                0, "Stable", "consumer", "range",
            )  # fmt: skip
            assert [(each.member_id, each.client_id, each.client_host) for each in group.members] == [
                (mine, "test", "/127.0.0.1")
            ]
            assert group.members[0].member_assignment == b"all"
            assert nobody.group_state == "Dead"
            assert nobody.error_code == (GroupIdNotFound.code if version >= 6 else 0)
        for version in VERSIONS[LIST]:
            told = await client.ask(LIST, version)
            (listed,) = told.groups
            assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
            if version >= 4:
                assert listed.group_state == "Stable"
                assert not (await client.ask(LIST, version, states_filter=("Empty",))).groups
            if version >= 5:
                assert listed.group_type == "classic"
                assert (await client.ask(LIST, version, types_filter=("Classic",))).groups
                assert not (await client.ask(LIST, version, types_filter=("consumer",))).groups
        for version in VERSIONS[DELETE]:
            told = await client.ask(DELETE, version, groups_names=("g", "nobody"))
            assert [each.error_code for each in told.results] == [NonEmptyGroup.code, GroupIdNotFound.code]


def commit_fields(version: int, topic: Any, *places: tuple[int, int, str | None], **more: Any) -> dict[str, Any]:
    parts = tuple(
        request_part(
            COMMIT,
            version,
            "OffsetCommitRequestPartition",
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=3,
            committed_metadata=note,
        )
        for index, offset, note in places
    )
    entry = request_part(COMMIT, version, "OffsetCommitRequestTopic", name=topic, topic_id=topic, partitions=parts)
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": (entry,), **more}


def fetch_fields(version: int, topic: Any, *indexes: int, group: str = "g", **more: Any) -> dict[str, Any]:
    kind = "OffsetFetchRequestTopics" if version >= 8 else "OffsetFetchRequestTopic"
    topics = None
    if topic is not None:
        topics = (request_part(FETCH, version, kind, name=topic, topic_id=topic, partition_indexes=indexes),)
    if version < 8:
        return {"group_id": group, "topics": topics}
    entry = {"group_id": group, "topics": topics, "member_epoch": -1, **more}
    return {"groups": (request_part(FETCH, version, "OffsetFetchRequestGroup", **entry),)}


def found(version: int, answer: Any) -> tuple[int, dict[int, tuple[int, str, int]]]:
    """The group's error, and by partition: offset, note, error."""
    group = answer.groups[0] if version >= 8 else answer
    parts = {
        part.partition_index: (part.committed_offset, part.metadata, part.error_code)
        for topic in group.topics
        for part in topic.partitions
    }
    return getattr(group, "error_code", 0), parts


@pytest.mark.parametrize("version", VERSIONS[COMMIT])
async def test_commits(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, door):
        topic = await door.broker.topics.create("t", partitions=2)
        name: Any = topic.topic_id if version >= 10 else "t"
        fields = commit_fields(version, name, (0, 5, "note"), (1, 6, None), (2, 7, ""))
        (told,) = (await client.ask(COMMIT, version, **fields)).topics
        assert [(part.partition_index, part.error_code) for part in told.partitions] == [
            (0, 0), (1, 0), (2, UnknownTopicOrPartition.code),
        ]  # fmt: skip
        (told,) = (await client.ask(COMMIT, version, **commit_fields(version, name, (0, 9, "x" * 4097)))).topics
        assert told.partitions[0].error_code == OffsetMetadataTooLarge.code
        unknown: Any = uuid4() if version >= 10 else "nowhere"
        (told,) = (await client.ask(COMMIT, version, **commit_fields(version, unknown, (0, 9, "")))).topics
        assert told.partitions[0].error_code == (UnknownTopicId if version >= 10 else UnknownTopicOrPartition).code
        stale = commit_fields(version, name, (0, 9, ""), generation_id_or_member_epoch=4, member_id="stranger")
        (told,) = (await client.ask(COMMIT, version, **stale)).topics
        assert told.partitions[0].error_code == IllegalGeneration.code
        assert found(9, await client.ask(FETCH, 9, **fetch_fields(9, "t", 0, 1))) == (
            0, {0: (5, "note", 0), 1: (6, "", 0)},
        )  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS[FETCH])
async def test_fetches(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, door):
        topic = await door.broker.topics.create("t", partitions=3)
        name: Any = topic.topic_id if version >= 10 else "t"
        await client.ask(COMMIT, 9, **commit_fields(9, "t", (0, 5, "note"), (1, 6, None)))
        answer = await client.ask(FETCH, version, **fetch_fields(version, name, 0, 2))
        assert found(version, answer) == (0, {0: (5, "note", 0), 2: (-1, "", 0)})
        group = answer.groups[0] if version >= 8 else answer
        if version >= 5:
            assert group.topics[0].partitions[0].committed_leader_epoch == 3
        answer = await client.ask(FETCH, version, **fetch_fields(version, name, 0, group="nobody"))
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
    async with connected(tmp_path) as (client, door):
        for name in "tu":
            await door.broker.topics.create(name, partitions=1)

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
        told = await forget("g")
        assert [topic.partitions[0].error_code for topic in told.topics] == [GroupSubscribedToTopic.code, 0]
        assert found(9, await client.ask(FETCH, 9, **fetch_fields(9, "u", 0)))[1][0][0] == -1
        await door.broker.topics.delete("t")
        assert found(9, await client.ask(FETCH, 9, **fetch_fields(9, None))) == (0, {})


async def pulse(client: RawClient, version: int, **fields: Any) -> Any:
    joining = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": SESSION,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    return await client.ask(PULSE, version, **{**joining, **fields})


@pytest.mark.parametrize("version", VERSIONS[PULSE])
async def test_a_life_in_a_consumer_group(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, door):
        topic = await door.broker.topics.create("t", partitions=3)
        told = await pulse(client, version, member_id="m" if version else "")
        assert (told.error_code, told.error_message, told.member_epoch) == (0, None, 1)
        assert told.heartbeat_interval == timedelta(seconds=5)
        assert told.member_id
        (assigned,) = told.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic.topic_id, (0, 1, 2))
        mine = told.member_id
        quiet = {"rebalance_timeout": timedelta(milliseconds=-1), "subscribed_topic_names": None}
        has = request_part(PULSE, version, "TopicPartitions", topic_id=topic.topic_id, partitions=(0, 1, 2))
        for said in ((has,), None):
            told = await pulse(client, version, member_id=mine, member_epoch=1, topic_partitions=said, **quiet)
            assert (told.error_code, told.assignment) == (0, None)
        fields = commit_fields(9, "t", (0, 5, ""), generation_id_or_member_epoch=9, member_id=mine)
        (topic_told,) = (await client.ask(COMMIT, 9, **fields)).topics
        assert topic_told.partitions[0].error_code == StaleMemberEpoch.code
        fields = commit_fields(8, "t", (0, 5, ""), generation_id_or_member_epoch=1, member_id=mine)
        (topic_told,) = (await client.ask(COMMIT, 8, **fields)).topics
        assert topic_told.partitions[0].error_code == UnsupportedVersion.code
        answer = await client.ask(FETCH, 9, **fetch_fields(9, "t", 0, member_id=mine, member_epoch=9))
        assert found(9, answer)[0] == StaleMemberEpoch.code
        for describe in VERSIONS[DESCRIBE_CONSUMERS]:
            described = await client.ask(DESCRIBE_CONSUMERS, describe, group_ids=("g", "nobody"))
            group, nobody = described.groups
            assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "uniform")
            (each,) = group.members
            assert (each.member_id, each.member_epoch, each.subscribed_topic_names) == (mine, 1, ("t",))
            assert each.assignment == each.target_assignment
            assert each.assignment.topic_partitions[0].topic_name == "t"
            assert nobody.error_code == GroupIdNotFound.code
        (classic,) = (await client.ask(DESCRIBE, 6, groups=("g",))).groups
        assert classic.error_code == GroupIdNotFound.code
        told = await pulse(client, version, member_id=mine, member_epoch=-1, topic_partitions=None, **quiet)
        assert (told.error_code, told.member_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, InvalidGroupId),
        ({"member_epoch": 4}, UnknownMemberId),
        ({"subscribed_topic_names": None}, InvalidRequest),
        ({"server_assignor": "fair"}, UnsupportedAssignor),
        ({"subscribed_topic_regex": "("}, InvalidRegularExpression),
    ],
)
async def test_refused_heartbeats(tmp_path: Path, fields: dict[str, Any], error: type[KafkaError]) -> None:
    async with connected(tmp_path) as (client, _door):
        told = await pulse(client, 1, **fields)
        assert told.error_code == error.code
        assert told.error_message
        assert not (await client.ask(LIST, 5)).groups


def test_the_features_that_clients_look_for() -> None:
    router = standard_table()
    assert ("group.version", 0, 1, 1) in router.features
