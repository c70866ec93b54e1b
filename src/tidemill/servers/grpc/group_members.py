"""Members of groups that come through BrokerService.

They are members of consumer groups as Kafka has them since KIP-848: one heartbeat joins, follows the assignment and
keeps alive, and the epoch that it answers fences whoever is behind. So Kafka's tools see these groups, and members of
both kinds can share one. A call says all that the member knows: no broker remembers anything of it but the group.
"""

from collections.abc import Iterable
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.groups.core.consumer_heartbeat import JOIN_EPOCH, LEAVE_EPOCH, HeartbeatRequest
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model.errors import InvalidRequest, UnknownTopicOrPartition
from tidemill.model.topics import TopicPartition
from tidemill.servers.grpc.error_status import meaning
from tidemill.servers.grpc.partition_reads import BEGINNING, END
from tidemill.wire.grpc import broker_pb2 as wire

REBALANCE_TIMEOUT_MS = 60_000
RESETS = {wire.RESET_EARLIEST: BEGINNING, wire.RESET_LATEST: END}


async def subscribe(broker: BrokerNode, request: wire.SubscribeRequest, host: str) -> wire.SubscribeReply:
    """Join: the member's epoch, and its first partitions."""
    meaning("reset", request.reset, RESETS)
    beat = _beat(request, JOIN_EPOCH, host)._replace(owned=frozenset())
    answer = await broker.groups.consumer_heartbeat(beat)
    assigned = _named(broker, answer.assigned or ())
    places = _places(broker, request, answer.member_id, answer.member_epoch, assigned)
    return wire.SubscribeReply(member_id=answer.member_id, member_epoch=answer.member_epoch, assigned=places)


async def heartbeat(broker: BrokerNode, request: wire.PollRequest, host: str) -> wire.PollReply:
    """A sign of life: the epoch, and the assignment where it is another than the request's."""
    known = {TopicPartition(one.topic, one.partition): one.offset for one in request.positions}
    owned = frozenset(
        (topic.topic_id, one.partition) for one in known if (topic := broker.topic(one.topic)) is not None
    )
    answer = await broker.groups.consumer_heartbeat(_beat(request, request.member_epoch, host)._replace(owned=owned))
    assigned = _named(broker, answer.assigned or ())
    reply = wire.PollReply(member_epoch=answer.member_epoch)
    if set(assigned) != set(known):
        reply.rebalance = True
        fresh = [one for one in assigned if one not in known]
        reply.assigned.extend(_position(one, known[one]) for one in assigned if one in known)
        reply.assigned.extend(_places(broker, request, request.member_id, answer.member_epoch, fresh))
    return reply


async def commit(broker: BrokerNode, request: wire.CommitRequest) -> wire.CommitReply:
    """All offsets, or none when the member is not the one to say so."""
    offsets = [OffsetCommit(one.topic, one.partition, one.offset) for one in request.offsets]
    for one in offsets:
        topic = broker.topic(one.topic)
        if topic is None or not 0 <= one.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {one.topic}-{one.partition}")
        if one.offset < 0:
            raise InvalidRequest(f"offset {one.offset} of {one.topic}-{one.partition} is below 0")
    await broker.groups.commit(request.group, offsets, generation=request.member_epoch, member_id=request.member_id)
    return wire.CommitReply()


async def unsubscribe(broker: BrokerNode, request: wire.UnsubscribeRequest) -> wire.UnsubscribeReply:
    """Leave; the partitions go to the others at once."""
    await broker.groups.consumer_heartbeat(HeartbeatRequest(request.group, request.member_id, LEAVE_EPOCH))
    return wire.UnsubscribeReply()


def _beat(request: wire.SubscribeRequest | wire.PollRequest, epoch: int, host: str) -> HeartbeatRequest:
    return HeartbeatRequest(
        request.group,
        request.member_id,
        epoch,
        client_id=request.client_id,
        client_host=host,
        rack_id=request.rack or None,
        rebalance_timeout_ms=request.rebalance_timeout_ms or REBALANCE_TIMEOUT_MS,
        topic_names=tuple(request.topics),
    )


def _named(broker: BrokerNode, partitions: Iterable[tuple[Any, int]]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic_id, index in sorted(partitions)
        if (topic := broker.topic_by_id(topic_id)) is not None
    ]


def _places(
    broker: BrokerNode,
    request: wire.SubscribeRequest | wire.PollRequest,
    member_id: str,
    epoch: int,
    partitions: list[TopicPartition],
) -> list[wire.Position]:
    """Where the group stands in the partitions: what it has committed, or where it begins."""
    found = broker.groups.fetch(request.group, partitions, stable=True, member_id=member_id, member_epoch=epoch)
    for one in found:
        if one.error is not None:
            raise one.error
    start = meaning("reset", request.reset, RESETS)
    return [
        _position(TopicPartition(one.topic, one.partition), start if one.offset < 0 else one.offset) for one in found
    ]


def _position(partition: TopicPartition, offset: int) -> wire.Position:
    return wire.Position(topic=partition.topic, partition=partition.partition, offset=offset)
