"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Requests name topics up to version 9 and use topic ids from version 10 on; the coordinator uses names. A partition
without a committed offset has offset -1 and no error, also in an unknown group. Every other failure is an error code,
never an invented offset.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tidemill.groups.core.offsets import OffsetCommit, OffsetCommitter
from tidemill.groups.core.shard import FetchedOffset
from tidemill.model.errors import (
    InvalidRequest,
    KafkaError,
    OffsetMetadataTooLarge,
    TidemillError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import TopicPartition
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest
    from kio.schema.offset_commit.v10.response import OffsetCommitResponse
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
    from kio.schema.offset_fetch.v7.request import OffsetFetchRequest as OffsetFetchRequestV7
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest
    from kio.schema.offset_fetch.v10.response import OffsetFetchResponse

OFFSETS_AT_ONCE = 500
_MANY_GROUPS_FROM = 8
_EPOCHS_FROM = 9
_GROUP_ERROR_FROM = 2

Errors = Mapping[TopicPartition, TidemillError]
_UNKNOWN_ID = UnknownTopicId()


async def offset_commit(call: Call["OffsetCommitResponse"], request: "OffsetCommitRequest") -> "OffsetCommitResponse":
    """Commit all valid partitions together; a rejected member commits none."""
    topics = [(topic, _topic_name(call, topic)) async for topic in call.in_slices(request.topics)]
    entries = [
        OffsetCommit(
            name,
            part.partition_index,
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.committed_metadata or "",
        )
        async for topic, name in call.in_slices(topics)
        if name is not None
        async for part in call.in_slices(topic.partitions)
    ]
    denial = call.denial(Operation.READ, ResourceType.GROUP, request.group_id)
    if denial is not None:
        refused = dict.fromkeys((TopicPartition(each.topic, each.partition) for each in entries), denial)
        refusals = [
            await _committed(call, topic, name, refused, denial) async for topic, name in call.in_slices(topics)
        ]
        return call.response(topics=tuple(refusals))
    errors = await check_commits(call, entries)
    good = [each async for each in call.in_slices(entries) if (each.topic, each.partition) not in errors]
    try:
        await call.broker.groups.commit(
            request.group_id,
            good,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            names_epochs=call.version >= _EPOCHS_FROM,
            client=OffsetCommitter(client_id=call.client_id, client_host=f"/{call.client_host}"),
        )
    except TidemillError as error:
        async for each in call.in_slices(good):
            errors[TopicPartition(each.topic, each.partition)] = error
    answers = [await _committed(call, topic, name, errors) async for topic, name in call.in_slices(topics)]
    return call.response(topics=tuple(answers))


async def check_commits(call: Call, entries: Iterable[OffsetCommit]) -> dict[TopicPartition, TidemillError]:
    """The errors that do not depend on the member: no right, unknown partitions, and metadata that is too long."""
    errors: dict[TopicPartition, TidemillError] = {}
    most = call.broker.groups.limits.offset_metadata_max_bytes
    async for entry in call.in_slices(entries):
        each = TopicPartition(entry.topic, entry.partition)
        topic = call.broker.view.topic(entry.topic)
        denial = call.denial(Operation.READ, ResourceType.TOPIC, entry.topic)
        if denial is not None:
            errors[each] = denial
        elif topic is None or not 0 <= entry.partition < len(topic.partitions):
            errors[each] = UnknownTopicOrPartition()
        elif len(entry.metadata.encode()) > most:
            errors[each] = OffsetMetadataTooLarge()
    return errors


async def _committed(
    call: Call, topic: Any, name: str | None, errors: Errors, unknown: TidemillError = _UNKNOWN_ID
) -> Any:
    def code(index: int) -> int:
        return unknown.code if name is None else error_code(errors.get(TopicPartition(name, index)))

    parts = [
        call.part(
            "OffsetCommitResponsePartition", partition_index=part.partition_index, error_code=code(part.partition_index)
        )
        async for part in call.in_slices(topic.partitions)
    ]
    return call.part("OffsetCommitResponseTopic", **_naming(topic), partitions=tuple(parts))


def _topic_name(call: Call, topic: Any) -> str | None:
    """The topic's name; None for an id that no topic has."""
    if hasattr(topic, "name"):
        return str(topic.name)
    known = call.broker.view.topic_by_id(topic.topic_id)
    return None if known is None else str(known.name)


def _naming(topic: Any) -> dict[str, Any]:
    return {"name": topic.name} if hasattr(topic, "name") else {"topic_id": topic.topic_id}


async def offset_fetch(call: Call["OffsetFetchResponse"], request: "OffsetFetchRequest") -> "OffsetFetchResponse":
    """Committed offsets of one group up to version 7, of many groups from version 8 on."""
    stable = getattr(request, "require_stable", False)
    if call.version >= _MANY_GROUPS_FROM:
        counted = Counter([group.group_id async for group in call.in_slices(request.groups)])
        groups = [
            await _fetch_group(call, group, stable=stable, repeated=counted[group.group_id] > 1)
            async for group in call.in_slices(request.groups)
        ]
        return call.response(groups=tuple(groups))
    old = cast("OffsetFetchRequestV7", request)
    try:
        found = await _fetch(call, old.group_id, await _wanted(call, old.topics), stable=stable)
    except TidemillError as error:
        code = error_code(error)
        on_partitions = code if call.version < _GROUP_ERROR_FROM else 0
        topics = await _without_offsets(call, old.topics or (), on_partitions, "OffsetFetchResponseTopic")
        return call.response(topics=topics, error_code=code)
    return call.response(topics=await _by_topic(call, found, "OffsetFetchResponseTopic"))


async def _fetch_group(call: Call, group: Any, *, stable: bool, repeated: bool) -> Any:
    kind = "OffsetFetchResponseTopics"
    try:
        if repeated:  # repeated groups would make the response grow without a limit
            raise InvalidRequest(f"the request names group {group.group_id[:60]!r} twice; name it once")
        found = await _fetch(
            call,
            group.group_id,
            await _wanted(call, group.topics),
            stable=stable,
            member_id=getattr(group, "member_id", None),
            member_epoch=getattr(group, "member_epoch", -1),
        )
    except TidemillError as error:
        topics = await _without_offsets(call, group.topics or (), 0, kind)
        return call.part(
            "OffsetFetchResponseGroup", group_id=group.group_id, topics=topics, error_code=error_code(error)
        )
    unknown = [topic async for topic in call.in_slices(group.topics or ()) if _topic_name(call, topic) is None]
    topics = await _by_topic(call, found, kind) + await _without_offsets(call, unknown, UnknownTopicId.code, kind)
    return call.part("OffsetFetchResponseGroup", group_id=group.group_id, topics=topics)


async def _fetch(
    call: Call, group_id: str, wanted: Sequence[TopicPartition] | None, **options: Any
) -> list[FetchedOffset]:
    """The offsets of a group, read in batches. Topics that the client may not describe have an error.

    They are left out when the client asks for all topics.
    """
    call.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    groups = call.broker.groups
    listed = groups.committed_partitions(group_id) if wanted is None else wanted
    found: list[FetchedOffset] = []
    denials = await _topic_denials(call, listed, is_named=wanted is not None)
    asked = [each async for each in call.in_slices(listed) if each.topic not in denials] if denials else listed
    async for start in call.in_slices(
        range(0, max(1, len(asked)), OFFSETS_AT_ONCE)
    ):  # at least once, because it checks the group
        found += groups.fetch(group_id, asked[start : start + OFFSETS_AT_ONCE], **options)
    if wanted is not None and denials:
        found += [
            FetchedOffset(each.topic, each.partition, -1, -1, "", denials[each.topic])
            async for each in call.in_slices(wanted)
            if each.topic in denials
        ]
    return found


async def _topic_denials(call: Call, partitions: Iterable[TopicPartition], *, is_named: bool) -> dict[str, KafkaError]:
    denials: dict[str, KafkaError] = {}
    if not call.checks_rights:
        return denials
    async for topic in call.in_slices({each.topic for each in partitions}):
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            continue
        denial = call.denial(Operation.DESCRIBE, ResourceType.TOPIC, topic) if is_named else None
        denials[topic] = denial or TopicAuthorizationFailed()
    return denials


async def _wanted(call: Call, topics: Sequence[Any] | None) -> list[TopicPartition] | None:
    if topics is None:
        return None
    return [
        TopicPartition(name, index)
        async for topic in call.in_slices(topics)
        if (name := _topic_name(call, topic)) is not None
        async for index in call.in_slices(topic.partition_indexes)
    ]


async def _by_topic(call: Call, found: Iterable[FetchedOffset], kind: str) -> tuple[Any, ...]:
    parts: dict[str, list[Any]] = {}
    async for each in call.in_slices(found):
        parts.setdefault(each.topic, []).append(
            _offset(call, kind, each.partition, each.offset, each.leader_epoch, each.metadata, error_code(each.error))
        )
    answers = []
    async for name, partitions in call.in_slices(parts.items()):
        topic_id = _topic_id(call, name)
        if topic_id is not None or call.version < 10:  # a response with ids cannot name a deleted topic
            answers.append(call.part(kind, name=name, topic_id=topic_id, partitions=tuple(partitions)))
    return tuple(answers)


def _topic_id(call: Call, name: str) -> UUID | None:
    known = call.broker.view.topic(name)
    return None if known is None else known.topic_id


async def _without_offsets(call: Call, topics: Iterable[Any], code: int, kind: str) -> tuple[Any, ...]:
    answers = []
    async for topic in call.in_slices(topics):
        indexes = call.in_slices(topic.partition_indexes)
        parts = [_offset(call, kind, index, -1, -1, "", code) async for index in indexes]
        answers.append(call.part(kind, **_naming(topic), partitions=tuple(parts)))
    return tuple(answers)


def _offset(call: Call, kind: str, index: int, offset: int, leader_epoch: int, metadata: str, code: int) -> Any:
    return call.part(
        kind.replace("Topic", "Partition"),
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=code,
    )


async def offset_delete(call: Call["OffsetDeleteResponse"], request: "OffsetDeleteRequest") -> "OffsetDeleteResponse":
    """Delete offsets of topics that no member of the group reads."""
    wanted = [
        TopicPartition(topic.name, part.partition_index)
        async for topic in call.in_slices(request.topics)
        async for part in call.in_slices(topic.partitions)
    ]
    call.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
    results: dict[TopicPartition, TidemillError | None] = {}
    async for each in call.in_slices(wanted):
        denial = call.denial(Operation.READ, ResourceType.TOPIC, each.topic)
        if denial is not None:
            results[each] = denial
    allowed = [each for each in wanted if each not in results]
    results |= await call.broker.groups.delete_offsets(request.group_id, allowed)
    deleted = sorted({each.topic for each in allowed if results[each] is None})
    if deleted:
        call.changed("offsets_deleted", group=request.group_id, topics=deleted)
    topics = []
    async for topic in call.in_slices(request.topics):
        parts = [
            call.part(
                "OffsetDeleteResponsePartition",
                partition_index=part.partition_index,
                error_code=error_code(results[TopicPartition(topic.name, part.partition_index)]),
            )
            async for part in call.in_slices(topic.partitions)
        ]
        topics.append(call.part("OffsetDeleteResponseTopic", name=topic.name, partitions=tuple(parts)))
    return call.response(topics=tuple(topics))
