"""The documents of groups, as the JSON API has them, from what a client of any Kafka broker can know."""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.cli.connection import TIMEOUT_S, answer, client_settings
from tidemill.cli.topic import stable_offsets_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidemill.pipelines.spec.core.broker import KafkaBroker
    from tidemill.wire.http.groups import AssignedTopic, GroupDescription, GroupMemberRow, GroupPage, GroupPartitionRow

PEEK_S = 5.0
CONSUMERS = "consumer"
"""The type of protocol of groups of consumers."""
STATES = {"PREPARING_REBALANCING": "PreparingRebalance", "COMPLETING_REBALANCING": "CompletingRebalance"}
"""States that librdkafka spells in its own way."""
Place = tuple[str, int]


def group_page(client: "AdminClient") -> "GroupPage":
    """All groups."""
    from tidemill.wire.http.groups import GroupPage, GroupRow

    found = answer(client.list_consumer_groups(request_timeout=TIMEOUT_S), "list groups")
    rows = [
        GroupRow(
            group=each.group_id,
            type=each.type.name.lower() if each.type else "",
            state=_state(each.state),
            protocol="" if each.is_simple_consumer_group else CONSUMERS,
            assignor=None,
            members=None,
            topics=None,
            topic_count=None,
            lag=None,
            lag_s=None,
            coordinator=None,
        )
        for each in sorted(found.valid, key=lambda each: str(each.group_id))
    ]
    states = Counter(row.state for row in rows)
    return GroupPage(groups=rows, total=len(rows), states=dict(sorted(states.items())), unreachable_brokers=[])


def group_description(client: "AdminClient", broker: "KafkaBroker", group: str) -> "GroupDescription | None":
    """One group with all its members and partitions; None when it has neither."""
    from tidemill.model.offset_notes import is_note
    from tidemill.servers.http.core.group_states import explanation_of
    from tidemill.servers.http.core.group_totals import totals_of
    from tidemill.wire.http.groups import GroupDescription

    described = answer(client.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group], f"describe {group}")
    committed = committed_offsets(client, group)
    if not committed and not described.members:
        return None
    kind, state = described.type.name.lower(), _state(described.state)
    protocol = "" if described.is_simple_consumer_group else CONSUMERS
    rows = _partition_rows(client, broker, group, committed, described.members)
    totals = totals_of(group, rows)
    return GroupDescription(
        group=group,
        type=kind,
        state=state,
        explanation=explanation_of(
            kind,
            state,
            protocol=protocol,
            has_offsets=bool(committed),
            has_notes=any(is_note(group, each.metadata or "") for each in committed.values()),
        ),
        protocol=protocol,
        assignor=described.partition_assignor or "",
        coordinator=described.coordinator.id,
        epoch=None,
        target_epoch=None,
        lag=totals.records,
        lag_s=totals.seconds,
        unknown_partitions=totals.unknown,
        members=[
            _member_row(each, kind)
            for each in sorted(described.members, key=lambda one: (one.client_id, one.member_id))
        ],
        member_count=len(described.members),
        partitions=rows,
        partition_count=len(rows),
        topics=sorted({row.topic for row in rows}),
        hidden_topics=0,
    )


def committed_offsets(client: "AdminClient", group: str) -> dict[Place, Any]:
    """What a group has committed: offset, leader epoch and metadata of each partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    future = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=TIMEOUT_S)[group]
    found = answer(future, f"offsets of {group}").topic_partitions or []
    return {(each.topic, each.partition): each for each in found if each.offset >= 0}


def _state(state: Any) -> str:
    name = "" if state is None else state.name
    return STATES.get(name, name.title())


def _member_row(member: Any, kind: str) -> "GroupMemberRow":
    from tidemill.wire.http.groups import GroupMemberRow

    assigned = _assigned(member.assignment)
    return GroupMemberRow(
        member=member.member_id,
        client=member.client_id,
        host=_host(member),
        instance=member.group_instance_id,
        rack=None,
        protocol=kind,
        epoch=None,
        is_leader=None,
        topics=None,
        pattern=None,
        assigned=assigned,
        target=assigned if member.target_assignment is None else _assigned(member.target_assignment),
    )


def _host(member: Any) -> str:
    """The address of a member. Kafka writes a slash before it."""
    return str(member.host).removeprefix("/")


def _assigned(assignment: Any) -> "list[AssignedTopic]":
    from tidemill.wire.http.groups import AssignedTopic

    by_topic: dict[str, list[int]] = {}
    for each in assignment.topic_partitions if assignment else ():
        by_topic.setdefault(each.topic, []).append(each.partition)
    return [AssignedTopic(topic=topic, partitions=sorted(indexes)) for topic, indexes in sorted(by_topic.items())]


def _partition_rows(
    client: "AdminClient", broker: "KafkaBroker", group: str, committed: dict[Place, Any], members: list[Any]
) -> "list[GroupPartitionRow]":
    from tidemill.model.offset_notes import is_note
    from tidemill.wire.http.groups import GroupPartitionRow

    owners = {
        (each.topic, each.partition): member
        for member in members
        for each in (member.assignment.topic_partitions if member.assignment else ())
    }
    places = sorted(committed.keys() | owners.keys())
    stable: dict[Place, int] = {}
    for topic in {topic for topic, _ in places}:
        found = stable_offsets_of(client, topic, [partition for name, partition in places if name == topic])
        stable |= {(topic, partition): offset for partition, offset in found.items()}
    positions = {place: each.offset for place, each in committed.items() if not is_note(group, each.metadata or "")}
    unread = _unread(broker, {place: offset for place, offset in positions.items() if offset < stable[place]})
    rows = []
    for place in places:
        owner, commit = owners.get(place), committed.get(place)
        offset = None if commit is None else commit.offset
        following = unread.get(place, UnreadOffset(offset or 0, None))
        lag = max(0, stable[place] - following.offset) if place in positions else None
        rows.append(
            GroupPartitionRow(
                topic=place[0],
                partition=place[1],
                committed=offset,
                end=stable[place],
                lag=lag,
                lag_s=0.0 if lag == 0 else following.age_s,
                committed_ms=None,
                metadata="" if commit is None else commit.metadata or "",
                leader_epoch=None if commit is None else commit.leader_epoch,
                is_unstable=None,
                member=owner.member_id if owner else None,
                client=owner.client_id if owner else None,
                host=_host(owner) if owner else None,
            )
        )
    return rows


class UnreadOffset(NamedTuple):
    """Where a group continues to read: the first record that it can read, or the end."""

    offset: int
    age_s: float | None


def _unread(broker: "KafkaBroker", places: dict[Place, int]) -> dict[Place, UnreadOffset]:
    """The next unread record of each partition, as /metrics and SQL compute it.

    Reads the first record and commits nothing. No record may be left before the end, because transaction markers,
    aborted and compacted records have offsets too. The records of an open transaction cannot be read yet.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    if not places:
        return {}
    settings = client_settings(broker, **{"group.id": "tidemill-group-describe", "enable.auto.commit": False})
    settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer(settings)
    found: dict[Place, UnreadOffset] = {}
    waiting = set(places)
    try:
        reader.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in places.items()])
        deadline = time.monotonic() + PEEK_S
        while waiting and time.monotonic() < deadline:
            message = reader.poll(0.2)
            if message is None:
                continue
            place = (message.topic(), message.partition())
            at_end = message.error() and message.error().code() == KafkaError._PARTITION_EOF  # noqa: SLF001 -- it has no other name
            if place not in waiting or (message.error() and not at_end):
                continue
            waiting.discard(place)
            reader.pause([TopicPartition(*place)])
            if not at_end:
                found[place] = UnreadOffset(message.offset(), _age_s(*message.timestamp()))
            else:
                found[place] = UnreadOffset(message.offset(), None)
    finally:
        reader.close()
    return found


def _age_s(kind: int, timestamp_ms: int) -> float | None:
    """The age of a record, if it has a time."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    if kind == TIMESTAMP_NOT_AVAILABLE or timestamp_ms < 0:
        return None
    return round(max(0.0, time.time() - timestamp_ms / 1000), 1)
