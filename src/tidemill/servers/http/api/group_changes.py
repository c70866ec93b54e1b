"""Changes of groups in the JSON API: reset and delete offsets, skip a record, remove a member, delete a group.

The Kafka server makes the changes, for the client. A preview runs the same function as the change, up to the commit.
"""

import base64
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from tidemill.client.kafka.client import EARLIEST, LATEST, KafkaClient
from tidemill.client.kafka.coordinators import GroupOffset
from tidemill.groups.core.offset_reset import (
    OffsetMove,
    ResetPosition,
    Target,
    at_time,
    earliest,
    exact,
    fixed,
    latest,
    plan_reset,
    shifted,
)
from tidemill.model.errors import (
    CorruptMessage,
    GroupIdNotFound,
    OffsetOutOfRange,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedCompressionType,
)
from tidemill.model.topics import TopicPartition
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.visibility import visible_batches
from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.group_description import describe_group
from tidemill.servers.http.api.share_positions import SHARE
from tidemill.wire.http.groups import (
    PARTITIONS_MAX,
    ByDuration,
    DeletedOffsets,
    ExactOffset,
    GroupDescriptionQuery,
    OffsetsReset,
    RecordSkip,
    ResetOutcome,
    ResetPartition,
    ResetTarget,
    SelectedTopic,
    ShiftBy,
    SkippedRecord,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    ToTime,
)

KEY_CHARS_MAX = 200
BATCHES_MAX = 100
"""The most batches that are read to find the record to skip."""
REMOVED_BY_ADMIN = "removed by an administrator in the console"

Places = Iterable[TopicPartition]


class UnreadRecord(NamedTuple):
    """The next record that a group reads in a partition, and the offset that is committed now."""

    committed: int
    record: Record


async def reset_offsets(context: ApiContext, call: ApiCall[None, OffsetsReset]) -> ResetOutcome:
    """Move the committed offsets of a group without members, or show what would change."""
    group, wanted = call.name(), call.body
    refusal = await _refusal(context, call.rights, group)
    if refusal is not None and not wanted.dry_run:
        raise ApiProblem(409, refusal)
    now_ms = context.broker.clock_ms()
    try:
        moves = await context.as_client(call.rights, lambda client: reset(client, group, wanted, now_ms))
    except (UnknownMemberId, RebalanceInProgress):
        raise ApiProblem(409, _stop_members(group, "its members have just joined")) from None
    if not wanted.dry_run:
        call.rights.changed(
            "group_offsets_reset",
            group=group,
            to=wanted.target.__struct_config__.tag,
            topics=sorted({move.place.topic for move in moves}),
            partitions=len(moves),
        )
    return _outcome(group, moves, refusal, dry_run=wanted.dry_run)


def reset(client: KafkaClient, group: str, wanted: OffsetsReset, now_ms: int) -> list[OffsetMove]:
    """Plan a reset, and commit it unless it is a dry run."""
    committed = {place: each.offset for place, each in client.group_offsets(group).items()}
    places = _selected(client, wanted, committed)
    if len(places) > PARTITIONS_MAX:
        raise ApiProblem(400, f"{len(places)} partitions are selected, and {PARTITIONS_MAX} at a time are accepted")
    if isinstance(wanted.target, ToOffsets):
        _check_previous(wanted.target.offsets, committed)
    starts = client.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(places, LATEST))
    positions = {
        place: ResetPosition(committed.get(place), starts[place].offset, ends[place].offset) for place in places
    }
    moves = plan_reset(positions, _target(client, wanted.target, places, now_ms))
    if not wanted.dry_run:
        client.commit_offsets(group, {move.place: GroupOffset(move.to) for move in moves})
    return moves


def _selected(client: KafkaClient, wanted: OffsetsReset, committed: Places) -> list[TopicPartition]:
    """The partitions of a reset, without repetition. ApiProblem if one does not exist or none is left."""
    if isinstance(wanted.target, ToOffsets):
        if wanted.topics is not None:
            raise ApiProblem(400, "offsets of partitions name their topics already; leave out topics")
        places = [TopicPartition(each.topic, each.partition) for each in wanted.target.offsets]
        if len(set(places)) != len(places):
            raise ApiProblem(400, "a partition is twice in the offsets; give each once")
        named = {place.topic: SelectedTopic(topic=place.topic, partitions=[]) for place in places}
        _partitions_of(client, list(named.values()), places)
        return places
    if wanted.topics is not None:
        return _partitions_of(client, wanted.topics)
    places = list(committed)
    if not places:
        raise ApiProblem(409, "the group has no committed offsets; name the topics of the reset")
    return places


def _partitions_of(
    client: KafkaClient, topics: list[SelectedTopic], named: list[TopicPartition] | None = None
) -> list[TopicPartition]:
    counts = {name: len(info.leaders) for name, info in client.metadata(each.topic for each in topics).items()}
    places = named or [
        TopicPartition(each.topic, index)
        for each in topics
        for index in (range(counts[each.topic]) if each.partitions is None else each.partitions)
    ]
    for place in places:
        if place.partition >= counts[place.topic]:
            raise ApiProblem(404, f"{place} does not exist; the topic has {counts[place.topic]} partitions")
    return list(dict.fromkeys(places))


def _check_previous(offsets: list[ExactOffset], committed: dict[TopicPartition, int]) -> None:
    for each in offsets:
        if each.previous is msgspec.UNSET:
            continue
        place = TopicPartition(each.topic, each.partition)
        now = committed.get(place)
        if now != each.previous:
            raise ApiProblem(
                409,
                f"the committed offset of {place} is {now} now and was {each.previous} in the preview; preview again",
            )


def _target(client: KafkaClient, target: ResetTarget, places: list[TopicPartition], now_ms: int) -> Target:
    match target:
        case ToEarliest():
            return earliest
        case ToLatest():
            return latest
        case ShiftBy(by=by):
            return shifted(by)
        case ToOffset(offset=offset):
            return fixed(offset)
        case ToOffsets(offsets=offsets):
            return exact({TopicPartition(each.topic, each.partition): each.offset for each in offsets})
        case ToTime(time_ms=time_ms):
            pass
        case ByDuration(duration_ms=duration_ms):
            time_ms = max(0, now_ms - duration_ms)
    found = client.list_offsets(dict.fromkeys(places, time_ms))
    return at_time({place: each.offset for place, each in found.items()})


def _outcome(group: str, moves: list[OffsetMove], refusal: str | None, *, dry_run: bool) -> ResetOutcome:
    records = [move.records or 0 for move in moves]
    return ResetOutcome(
        group=group,
        dry_run=dry_run,
        refusal=refusal,
        partitions=[
            ResetPartition(
                topic=move.place.topic,
                partition=move.place.partition,
                previous=move.previous,
                to=move.to,
                records=move.records,
            )
            for move in moves
        ],
        skipped=sum(each for each in records if each > 0),
        read_again=-sum(each for each in records if each < 0),
    )


async def skip_record(context: ApiContext, call: ApiCall[None, RecordSkip]) -> SkippedRecord:
    """Commit the offset after the next record of a partition, or show this record."""
    group, wanted = call.name(), call.body
    refusal = await _refusal(context, call.rights, group)
    if not wanted.dry_run:
        if refusal is not None:
            raise ApiProblem(409, refusal)
        if wanted.offset is None:
            raise ApiProblem(400, "name the offset of the record to skip; a dry run returns it")
    try:
        unread = await context.as_client(call.rights, lambda client: skip(client, group, wanted))
    except (UnknownMemberId, RebalanceInProgress):
        raise ApiProblem(409, _stop_members(group, "its members have just joined")) from None
    record = unread.record
    if not wanted.dry_run:
        call.rights.changed(
            "group_record_skipped", group=group, topic=wanted.topic, partition=wanted.partition, offset=record.offset
        )
    key, is_base64 = _shown_key(record.key)
    return SkippedRecord(
        group=group,
        dry_run=wanted.dry_run,
        refusal=refusal,
        topic=wanted.topic,
        partition=wanted.partition,
        previous=unread.committed,
        to=record.offset + 1,
        offset=record.offset,
        time_ms=record.timestamp,
        key=key,
        key_is_base64=is_base64,
        value_bytes=None if record.value is None else len(record.value),
    )


def skip(client: KafkaClient, group: str, wanted: RecordSkip) -> UnreadRecord:
    """Find the next record of a partition, and commit the offset after it unless this is a dry run."""
    place = TopicPartition(wanted.topic, wanted.partition)
    _partitions_of(client, [SelectedTopic(topic=place.topic, partitions=[place.partition])])
    known = client.group_offsets(group, [place]).get(place)
    if known is None:
        raise ApiProblem(409, f"the group has no committed offset for {place}; reset it to an offset instead")
    record = _next_record(client, place, known.offset)
    if wanted.offset is not None and record.offset != wanted.offset:
        raise ApiProblem(
            409,
            f"the next record of {place} has offset {record.offset} now, and {wanted.offset} was to be skipped; "
            "preview again",
        )
    if not wanted.dry_run:
        client.commit_offsets(group, {place: GroupOffset(record.offset + 1)})
    return UnreadRecord(known.offset, record)


def _next_record(client: KafkaClient, place: TopicPartition, offset: int) -> Record:
    """The first record from an offset on that a read_committed consumer gets."""
    position = offset
    for _ in range(BATCHES_MAX):
        try:
            found = client.fetch(place, position, committed=True, max_bytes=1, max_wait_ms=0)
        except OffsetOutOfRange:
            raise ApiProblem(
                409, f"offset {position} of {place} is not in the log any more; reset it to the earliest record"
            ) from None
        if not found.records or position >= found.last_stable_offset:
            break
        for header, batch in visible_batches([found.records], found.aborted):
            if batch is None:
                continue
            try:
                record = next((each for each in read_records(batch) if each.offset >= offset), None)
            except (CorruptMessage, UnsupportedCompressionType):
                raise ApiProblem(
                    409,
                    f"the records of {place} before offset {header.next_offset} cannot be read; reset the partition "
                    f"to offset {header.next_offset} to skip all of them",
                ) from None
            if record is not None:
                return record
        position = found.next_offset
    raise ApiProblem(409, f"the group has no unread record in {place}; there is none to skip")


def _shown_key(key: bytes | memoryview | None) -> tuple[str | None, bool]:
    if key is None:
        return None, False
    data = bytes(key)
    try:
        return data.decode()[:KEY_CHARS_MAX], False
    except UnicodeDecodeError:
        return base64.b64encode(data[:KEY_CHARS_MAX]).decode(), True


async def delete_offsets(context: ApiContext, call: ApiCall[None, None]) -> DeletedOffsets:
    """Delete the committed offsets of a topic that no member of the group reads."""
    group, topic = call.name(), call.name("topic")
    await _check_offsets(context, call.rights, group)

    def work(client: KafkaClient) -> list[int]:
        partitions = sorted(place.partition for place in client.group_offsets(group) if place.topic == topic)
        if not partitions:
            raise ApiProblem(404, f"group {group} has no committed offsets of topic {topic}")
        client.delete_offsets(group, topic, partitions)
        return partitions

    return DeletedOffsets(group=group, topic=topic, partitions=await context.as_client(call.rights, work))


async def remove_member(context: ApiContext, call: ApiCall[None, None]) -> None:
    """Remove a member. A consumer that still runs joins again."""
    group, member_id = call.name(), call.name("member")
    await _check_offsets(context, call.rights, group)
    try:
        await context.as_client(call.rights, lambda client: client.remove_member(group, member_id, REMOVED_BY_ADMIN))
    except UnknownMemberId:
        raise ApiProblem(404, f"group {group} has no member {member_id}; it has left already") from None
    call.rights.changed("group_member_removed", group=group, member=member_id)


async def delete_group(context: ApiContext, call: ApiCall[None, None]) -> None:
    """Delete a group without members, with its offsets."""
    group = call.name()
    await context.as_client(call.rights, lambda client: client.delete_group(group))


async def _refusal(context: ApiContext, rights: ClientRights, group: str) -> str | None:
    """Why the offsets of a group cannot be changed now; None if they can."""
    try:
        found = await describe_group(context, rights, group, GroupDescriptionQuery(rows=1))
    except GroupIdNotFound:
        return None
    if found.type == SHARE:
        return _no_offsets(group)
    if not found.member_count:
        return None
    count = f"it has {found.member_count} member{'s' if found.member_count > 1 else ''}"
    return _stop_members(group, count)


async def _check_offsets(context: ApiContext, rights: ClientRights, group: str) -> None:
    """Reject a change of a share group that only other groups know."""
    with suppress(GroupIdNotFound):
        found = await describe_group(context, rights, group, GroupDescriptionQuery(rows=1))
        if found.type == SHARE:
            raise ApiProblem(409, _no_offsets(group))


def _no_offsets(group: str) -> str:
    return (
        f"{group} is a share group: it commits no offsets, and its members leave by themselves; move it, without "
        "members, with: tidemill share reset-offsets"
    )


def _stop_members(group: str, why: str) -> str:
    return (
        f"the offsets of group {group} cannot be changed: {why}. Members keep their position in memory, and Kafka "
        "accepts commits from them only; stop them, make the change, and start them again"
    )


HANDLERS: dict[str, ApiHandler] = {
    "POST /api/v1/groups/{name}/offsets": reset_offsets,
    "POST /api/v1/groups/{name}/skip": skip_record,
    "DELETE /api/v1/groups/{name}/offsets/{topic}": delete_offsets,
    "DELETE /api/v1/groups/{name}/members/{member}": remove_member,
    "DELETE /api/v1/groups/{name}": delete_group,
}
