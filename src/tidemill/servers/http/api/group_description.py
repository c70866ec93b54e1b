"""One group: its coordinator makes the description, with a page of the members and one of the partitions."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.broker.group_lag import LagState
from tidemill.groups.core.group_details import Assigned, GroupDetails, MemberDetails
from tidemill.groups.core.lag import PartitionLag
from tidemill.model.errors import GroupIdNotFound
from tidemill.model.offset_notes import is_note
from tidemill.model.topics import GROUP_OFFSETS, TopicPartition
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.group_parts import UNKNOWN_LAG, describes_topics
from tidemill.servers.http.api.paging import rows_of
from tidemill.servers.http.api.share_positions import SHARE, with_positions
from tidemill.servers.http.core.group_states import explanation_of
from tidemill.servers.http.core.group_totals import totals_of
from tidemill.wire.http.groups import (
    AssignedTopic,
    GroupDescription,
    GroupDescriptionQuery,
    GroupMemberRow,
    GroupPartitionRow,
    GroupQuestion,
    SharePartitionRow,
)


async def describe_group(
    context: ApiContext, rights: ClientRights, group: str, asked: GroupDescriptionQuery
) -> GroupDescription:
    """Everything about one group, from its coordinator."""
    rights.check(Operation.DESCRIBE, ResourceType.GROUP, group)
    coordinator = context.broker.coordinators.of_group(group)
    if coordinator < 0:
        if context.broker.view.topic(GROUP_OFFSETS) is None:
            raise GroupIdNotFound(f"group {group} does not exist; see /groups")
        raise ApiProblem(503, f"group {group} has no coordinator at the moment; try again")
    found = await context.parts.at(coordinator, GROUP, rights, GroupQuestion(group=group, asked=asked))
    return found if found.type != SHARE else await with_positions(context, rights, found, asked)


async def _group_here(broker: BrokerNode, rights: ClientRights, question: GroupQuestion) -> GroupDescription:
    rights.check(Operation.DESCRIBE, ResourceType.GROUP, question.group)
    details = broker.groups.details(question.group, broker.view.topic_name)
    shared = _shared(broker, details)
    owners = {
        TopicPartition(topic, index): member
        for member in (details.members if details.summary.kind != SHARE else ())
        for topic, indexes in member.assigned.items()
        for index in indexes
    }
    notes = {place for place, each in details.offsets.items() if is_note(question.group, each.metadata)}
    lags = await broker.group_lag.of_group(question.group, (owners.keys() - details.offsets.keys()) | notes)
    describes = describes_topics(rights)
    topics = {place.topic for place in (*details.offsets, *owners, *shared)}
    topics.update(topic for member in details.members for topic in member.topics)
    rows = _partitions(details, owners, lags, describes)
    totals = totals_of(question.group, rows)
    summary, asked = details.summary, question.asked
    found = [row for row in rows if asked.search in row.topic]
    members = sorted(details.members, key=lambda each: (each.client_id, each.member_id))
    start = (asked.members_page - 1) * asked.rows
    visible = sorted(topic for topic in topics if describes(topic))
    return GroupDescription(
        group=summary.group_id,
        type=summary.kind,
        state=str(summary.state),
        explanation=explanation_of(
            summary.kind,
            str(summary.state),
            protocol=summary.protocol_type,
            has_offsets=bool(details.offsets),
            has_notes=bool(notes),
        ),
        protocol=summary.protocol_type,
        assignor=summary.assignor,
        coordinator=broker.node_id,
        epoch=details.epoch,
        target_epoch=details.target_epoch,
        lag=totals.records,
        lag_s=totals.seconds,
        unknown_partitions=totals.unknown,
        members=[_member(each, details, describes) for each in members[start : start + asked.rows]],
        member_count=len(members),
        partitions=rows_of(found, asked, _sort_key(asked.sort)),
        partition_count=len(found),
        topics=visible,
        hidden_topics=len(topics) - len(visible),
        shared=[
            SharePartitionRow(topic=place.topic, partition=place.partition, members=count)
            for place, count in shared.items()
            if describes(place.topic)
        ],
    )


def _shared(broker: BrokerNode, details: GroupDetails) -> dict[TopicPartition, int]:
    """The partitions of a share group, with the number of members that fetch from each."""
    if details.summary.kind != SHARE:
        return {}
    assigned = Counter(
        TopicPartition(topic, index)
        for member in details.members
        for topic, indexes in member.assigned.items()
        for index in indexes
    )
    partitions = broker.groups.shared_partitions(details.summary.group_id)
    names = {topic_id: broker.view.topic_name(topic_id) for topic_id, _ in partitions}
    places = [TopicPartition(name, index) for topic_id, index in partitions if (name := names[topic_id]) is not None]
    return {place: assigned[place] for place in sorted(places)}


def _partitions(
    details: GroupDetails,
    owners: dict[TopicPartition, MemberDetails],
    lags: LagState,
    describes: Callable[[str], bool],
) -> list[GroupPartitionRow]:
    known = {lag.committed.place: lag for lag in lags.lags()}
    places = sorted({*details.offsets, *owners})
    return [
        _partition(place, details, owners.get(place), known.get(place), lags.ends.get(place))
        for place in places
        if describes(place.topic)
    ]


def _partition(
    place: TopicPartition, details: GroupDetails, owner: MemberDetails | None, lag: PartitionLag | None, end: int | None
) -> GroupPartitionRow:
    value = details.offsets.get(place)
    return GroupPartitionRow(
        topic=place.topic,
        partition=place.partition,
        committed=None if value is None else value.offset,
        end=end,
        lag=None if lag is None else lag.records,
        lag_s=None if lag is None else lag.seconds,
        committed_ms=None if value is None or value.commit_ms < 0 else value.commit_ms,
        metadata="" if value is None else value.metadata,
        leader_epoch=None if value is None or value.leader_epoch < 0 else value.leader_epoch,
        is_unstable=place in details.unstable,
        member=None if owner is None else owner.member_id,
        client=None if owner is None else owner.client_id,
        host=None if owner is None else host_of(owner),
    )


def _member(member: MemberDetails, details: GroupDetails, describes: Callable[[str], bool]) -> GroupMemberRow:
    return GroupMemberRow(
        member=member.member_id,
        client=member.client_id,
        host=host_of(member),
        instance=member.instance_id,
        rack=member.rack_id,
        protocol=member.kind,
        epoch=member.epoch,
        is_leader=member.member_id == details.leader,
        topics=[topic for topic in member.topics if describes(topic)],
        pattern=member.pattern,
        assigned=_assigned(member.assigned, describes),
        target=_assigned(member.target, describes),
    )


def host_of(member: MemberDetails) -> str:
    """The address of a member. Kafka writes a slash before it."""
    return member.client_host.removeprefix("/")


def _assigned(partitions: Assigned, describes: Callable[[str], bool]) -> list[AssignedTopic]:
    return [
        AssignedTopic(topic=topic, partitions=sorted(partitions[topic]))
        for topic in sorted(partitions)
        if describes(topic)
    ]


def _sort_key(column: str) -> Any:
    def key(row: GroupPartitionRow) -> Any:
        place = row.topic, row.partition
        if column == "partition":
            return place
        value = getattr(row, column)
        if column in ("member", "client"):
            return value or "", place
        return UNKNOWN_LAG if value is None else value, place

    return key


GROUP = PartKind("group", GroupQuestion, GroupDescription, _group_here)
