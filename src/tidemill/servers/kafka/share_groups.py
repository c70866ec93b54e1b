"""The APIs of share groups at their coordinator: ShareGroupHeartbeat, ShareGroupDescribe, and their offsets."""

from typing import TYPE_CHECKING, Any

from tidemill.groups.core.descriptions import DescribedConsumer
from tidemill.groups.core.share_group import ShareHeartbeat
from tidemill.model.errors import TidemillError, TopicAuthorizationFailed
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.servers.kafka.authorized_operations import NOT_ASKED, group_operations
from tidemill.servers.kafka.consumer_groups import assignment_of, by_topic

if TYPE_CHECKING:
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
    from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
    from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse


async def share_group_heartbeat(
    call: Call["ShareGroupHeartbeatResponse"], request: "ShareGroupHeartbeatRequest"
) -> "ShareGroupHeartbeatResponse":
    """Join a group, get the assignment, or leave."""
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    async for topic in call.in_slices((request.subscribed_topic_names or ()) if call.checks_rights else ()):
        call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    heartbeat = ShareHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        rack_id=request.rack_id,
        topic_names=request.subscribed_topic_names,
        client_id=call.client_id,
        client_host=f"/{call.client_host}",
    )
    answer = await call.broker.groups.share_heartbeat(heartbeat, call.broker.share_states.create)
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


async def share_group_describe(
    call: Call["ShareGroupDescribeResponse"], request: "ShareGroupDescribeRequest"
) -> "ShareGroupDescribeResponse":
    """Describe groups; each has its own error."""
    asked = request.include_authorized_operations
    distinct = dict.fromkeys(request.group_ids)
    groups = [await _described(call, group_id, asked=asked) async for group_id in call.in_slices(distinct)]
    return call.response(groups=tuple(groups))


async def _described(call: Call, group_id: str, *, asked: bool) -> Any:
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = call.broker.groups.describe_share(group_id)
        for member in group.members if call.checks_rights else ():
            _check_topics(call, member)
    except TidemillError as error:
        return call.part(
            "DescribedGroup",
            error_code=error_code(error),
            error_message=error_message(error),
            group_id=group_id,
            authorized_operations=NOT_ASKED,
        )
    members = [
        call.part(
            "Member",
            member_id=member.member_id,
            rack_id=member.about.rack_id,
            member_epoch=member.epoch,
            client_id=member.about.client_id,
            client_host=member.about.client_host,
            subscribed_topic_names=member.about.topic_names,
            assignment=await assignment_of(call, member.assigned),
        )
        async for member in call.in_slices(group.members)
    ]
    return call.part(
        "DescribedGroup",
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=tuple(members),
        authorized_operations=group_operations(call, group_id, asked=asked),
    )


def _check_topics(call: Call, member: DescribedConsumer) -> None:
    """Reject a client that may not describe a topic of the member, as Kafka does."""
    if not all(call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in member.about.topic_names):
        raise TopicAuthorizationFailed("the group has topics that this client may not describe")
