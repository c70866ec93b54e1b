"""A client of the group APIs of a Kafka server."""

from datetime import timedelta
from typing import Any

from tests.support.kafka_server import RawClient, request_part

JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 11, 12, 13, 14, 15, 16, 42
COMMIT, FETCH, FORGET, PULSE, DESCRIBE_CONSUMERS = 8, 9, 47, 68, 69
SESSION = timedelta(seconds=10)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


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
