"""The APIs of KIP-848 consumer groups: ConsumerGroupHeartbeat and ConsumerGroupDescribe.

Topics are named by their ids. ConsumerGroupDescribe returns GROUP_ID_NOT_FOUND for a classic group: clients then ask
with DescribeGroups.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tidemill.groups.core.consumer_group import TopicView
from tidemill.groups.core.consumer_heartbeat import HeartbeatRequest
from tidemill.groups.core.descriptions import DescribedConsumer
from tidemill.groups.core.entries import Partitions
from tidemill.model.errors import TidemillError, TopicAuthorizationFailed
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.servers.kafka.authorized_operations import NOT_ASKED, group_operations
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_MILLISECOND = timedelta(milliseconds=1)


async def consumer_group_heartbeat(
    call: Call["ConsumerGroupHeartbeatResponse"], request: "ConsumerGroupHeartbeatRequest"
) -> "ConsumerGroupHeartbeatResponse":
    """Join a group, get the assignment, or leave."""
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    async for topic in call.in_slices((request.subscribed_topic_names or ()) if call.checks_rights else ()):
        call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    owned = None
    if request.topic_partitions is not None:
        listed = [
            (each.topic_id, index)
            async for each in call.in_slices(request.topic_partitions)
            async for index in call.in_slices(each.partitions)
        ]
        owned = cast("frozenset[tuple[UUID, int]]", frozenset(listed))
    answer = await call.broker.groups.consumer_heartbeat(
        HeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            client_id=call.client_id,
            client_host=f"/{call.client_host}",
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout // _MILLISECOND,
            topic_names=request.subscribed_topic_names,
            topic_regex=getattr(request, "subscribed_topic_regex", None),
            server_assignor=request.server_assignor,
            owned=owned,
            view=_view(call),
        )
    )
    assignment = None
    if answer.assigned is not None:
        topics = [
            call.part("TopicPartitions", topic_id=topic_id, partitions=tuple(indexes))
            async for topic_id, indexes in call.in_slices(await by_topic(call, answer.assigned))
        ]
        assignment = call.part("Assignment", topic_partitions=tuple(topics))
    return call.response(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval=answer.heartbeat_ms,
        assignment=assignment,
    )


def _view(call: Call) -> TopicView | None:
    """The topics that a pattern of this client may select; None where rights are not checked."""
    if not call.checks_rights:
        return None
    authorizer, principal, host = call.broker.security.authorizer, call.principal, call.client_host

    def allows(topic: str) -> bool:
        return authorizer.allows(principal, host, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    return TopicView(authorizer.rights_key(principal, host), allows)


async def by_topic(call: Call, partitions: Partitions) -> Iterable[tuple[UUID, list[int]]]:
    """The partitions of each topic, in order."""
    ordered = sorted(partitions) if len(partitions) <= LOOP_ITEMS_MAX else await call.in_worker(sorted, partitions)
    topics: dict[UUID, list[int]] = {}
    async for topic_id, index in call.in_slices(ordered):
        topics.setdefault(topic_id, []).append(index)
    return topics.items()


async def consumer_group_describe(
    call: Call["ConsumerGroupDescribeResponse"], request: "ConsumerGroupDescribeRequest"
) -> "ConsumerGroupDescribeResponse":
    """Describe groups; each has its own error."""
    asked = request.include_authorized_operations
    distinct = dict.fromkeys(request.group_ids)
    groups = [await _described(call, group_id, asked=asked) async for group_id in call.in_slices(distinct)]
    return call.response(groups=tuple(groups))


async def _described(call: Call, group_id: str, *, asked: bool) -> Any:
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = call.broker.groups.describe_consumers(group_id)
        async for member in call.in_slices(group.members if call.checks_rights else ()):
            await _check_topics(call, member)
    except TidemillError as error:
        return call.part(
            "DescribedGroup",
            error_code=error_code(error),
            error_message=error_message(error),
            group_id=group_id,
            authorized_operations=NOT_ASKED,
        )
    return call.part(
        "DescribedGroup",
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=tuple([await _member(call, member) async for member in call.in_slices(group.members)]),
        authorized_operations=group_operations(call, group_id, asked=asked),
    )


async def _check_topics(call: Call, member: DescribedConsumer) -> None:
    """Reject a client that may not describe a topic of the member, as Kafka does."""
    names = set(member.about.topic_names or ())
    async for topic_id, _ in call.in_slices(member.assigned | member.target):
        topic = call.broker.view.topic_by_id(topic_id)
        if topic is not None:
            names.add(topic.name)
    for name in sorted(names):
        if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed("the group has topics that this client may not describe")


async def _member(call: Call, member: DescribedConsumer) -> Any:
    about = member.about
    return call.part(
        "Member",
        member_id=member.member_id,
        instance_id=about.instance_id,
        rack_id=about.rack_id,
        member_epoch=member.epoch,
        client_id=about.client_id,
        client_host=about.client_host,
        subscribed_topic_names=about.topic_names,
        subscribed_topic_regex=about.topic_regex,
        assignment=await assignment_of(call, member.assigned),
        target_assignment=await assignment_of(call, member.target),
        member_type=_CONSUMER_MEMBER if about.classic is None else _CLASSIC_MEMBER,
    )


async def assignment_of(call: Call, partitions: Partitions) -> Any:
    """An assignment with the names of its topics; deleted topics are left out."""
    topics = [
        call.part("TopicPartitions", topic_id=topic_id, topic_name=topic.name, partitions=tuple(indexes))
        async for topic_id, indexes in call.in_slices(await by_topic(call, partitions))
        if (topic := call.broker.view.topic_by_id(topic_id)) is not None
    ]
    return call.part("Assignment", topic_partitions=tuple(topics))
