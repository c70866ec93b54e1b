"""The APIs of classic groups; `group_offsets` and `consumer_groups` have the other group APIs.

An error response must fill its other fields as Kafka does: a rejected join has generation -1, an empty protocol and
the member's own id.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from tidemill.groups.core.descriptions import DescribedGroup
from tidemill.groups.core.entries import NO_PARTITIONS, Partitions
from tidemill.groups.core.messages import JoinAnswer, JoinRequest, Leaver, Left, SyncRequest
from tidemill.groups.core.shard import group_filter
from tidemill.model.errors import GroupAuthorizationFailed, GroupIdNotFound, TidemillError, UnknownMemberId
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.servers.kafka.authorized_operations import group_operations

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.describe_groups.v6.response import DescribeGroupsResponse
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.join_group.v9.response import JoinGroupResponse
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveGroupRequestV2
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListGroupsResponse
    from kio.schema.sync_group.v5.request import SyncGroupRequest
    from kio.schema.sync_group.v5.response import SyncGroupResponse

_TAKES_ID_FIRST_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9
_LEAVES_MANY_FROM = 3
_NOT_FOUND_FROM = 6
_MILLISECOND = timedelta(milliseconds=1)


async def join_group(call: Call["JoinGroupResponse"], request: "JoinGroupRequest") -> "JoinGroupResponse":
    """Join a group; the response waits until the generation is complete.

    The responses of a large group are sent in slices.
    """
    try:
        call.check(Operation.READ, ResourceType.GROUP, request.group_id)
        answer = await call.broker.groups.join(_join_request(call, request))
    except TidemillError as error:
        return await _joined(call, JoinAnswer(request.member_id), error)
    return await _joined(call, answer, answer.error)


def _join_request(call: Call, request: "JoinGroupRequest") -> JoinRequest:
    call.broker.groups.check_protocols(len(request.protocols))
    session_ms = request.session_timeout // _MILLISECOND
    rebalance_ms = getattr(request, "rebalance_timeout", request.session_timeout) // _MILLISECOND
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id,
        client_host=f"/{call.client_host}",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        takes_member_id_first=call.version >= _TAKES_ID_FIRST_FROM,
        skips_assignment=call.version >= _SKIPS_ASSIGNMENT_FROM,
    )


async def _joined(
    call: Call["JoinGroupResponse"], answer: JoinAnswer, error: TidemillError | None
) -> "JoinGroupResponse":
    members = [
        call.part(
            "JoinGroupResponseMember",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.subscription,
        )
        async for member in call.in_slices(answer.members)
    ]
    protocol = answer.protocol
    return call.response(
        error_code=error_code(error),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol if call.version >= _NULL_PROTOCOL_FROM else protocol or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(members),
    )


async def sync_group(call: Call["SyncGroupResponse"], request: "SyncGroupRequest") -> "SyncGroupResponse":
    """Get the assignment; the response waits until the leader has sent the assignments.

    The responses of a large group are sent in slices.
    """
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    assignments = {each.member_id: each.assignment async for each in call.in_slices(request.assignments)}
    answer = await call.broker.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            protocol_type=getattr(request, "protocol_type", None),
            protocol=getattr(request, "protocol_name", None),
            assignments=assignments,
        )
    )
    await call.pause()
    return call.response(
        protocol_type=answer.protocol_type, protocol_name=answer.protocol, assignment=answer.assignment
    )


async def heartbeat(call: Call["HeartbeatResponse"], request: "HeartbeatRequest") -> "HeartbeatResponse":
    """Renew the session of a member."""
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    instance_id = getattr(request, "group_instance_id", None)
    call.broker.groups.heartbeat(request.group_id, request.generation_id, request.member_id, instance_id)
    return call.response()


async def leave_group(call: Call["LeaveGroupResponse"], request: "LeaveGroupRequest") -> "LeaveGroupResponse":
    """Remove one member or, from version 3 on, many; each has its own result."""
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    if call.version < _LEAVES_MANY_FROM:
        left = await call.broker.groups.leave(
            request.group_id, [Leaver(cast("LeaveGroupRequestV2", request).member_id)]
        )
        return call.response(error_code=error_code(left[0].error))
    leavers = [Leaver(member.member_id, member.group_instance_id) async for member in call.in_slices(request.members)]
    try:
        left = await call.broker.groups.leave(request.group_id, leavers)
    except UnknownMemberId as error:  # an unknown group has no members
        left = [Left(leaver, error) for leaver in leavers]
    return call.response(members=tuple([_left(call, each) async for each in call.in_slices(left)]))


def _left(call: Call, left: Left) -> Any:
    return call.part(
        "MemberResponse",
        member_id=left.leaver.member_id,
        group_instance_id=left.leaver.instance_id,
        error_code=error_code(left.error),
    )


async def describe_groups(
    call: Call["DescribeGroupsResponse"], request: "DescribeGroupsRequest"
) -> "DescribeGroupsResponse":
    """Describe classic groups; an unknown group is in state Dead, from version 6 on with an error."""
    asked = getattr(request, "include_authorized_operations", False)
    distinct = dict.fromkeys(request.groups)
    groups = [await _described(call, group_id, asked=asked) async for group_id in call.in_slices(distinct)]
    return call.response(groups=tuple(groups))


async def _described(call: Call, group_id: str, *, asked: bool) -> Any:
    failure: TidemillError | None = None
    try:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = call.broker.groups.describe(group_id)
    except GroupIdNotFound as error:
        group = DescribedGroup(group_id, "Dead")
        failure = error if call.version >= _NOT_FOUND_FROM else None
    except TidemillError as error:
        group, failure = DescribedGroup(group_id, ""), error
        asked = asked and not isinstance(error, GroupAuthorizationFailed)
    members = [
        call.part(
            "DescribedGroupMember",
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        async for member in call.in_slices(group.members)
    ]
    return call.part(
        "DescribedGroup",
        error_code=error_code(failure),
        error_message=error_message(failure),
        group_id=group_id,
        group_state=str(group.state),
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(members),
        authorized_operations=group_operations(call, group_id, asked=asked),
    )


async def list_groups(call: Call["ListGroupsResponse"], request: "ListGroupsRequest") -> "ListGroupsResponse":
    """List every group that passes the filters."""
    groups = call.broker.groups
    sees_all = call.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    passes = group_filter(getattr(request, "states_filter", ()), getattr(request, "types_filter", ()))
    listed = [
        call.part(
            "ListedGroup",
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=str(group.state),
            group_type=group.kind,
        )
        async for group_id in call.in_slices(groups.group_ids())
        if (sees_all or call.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id))
        and (group := groups.listed(group_id)) is not None
        and passes(group)
    ]
    return call.response(groups=tuple(listed))


async def delete_groups(call: Call["DeleteGroupsResponse"], request: "DeleteGroupsRequest") -> "DeleteGroupsResponse":
    """Delete groups without members; each has its own result."""
    results = []
    async for group_id in call.in_slices(request.groups_names):
        failure: TidemillError | None = None
        try:
            call.check(Operation.DELETE, ResourceType.GROUP, group_id)
            if call.broker.groups.is_share_group(group_id):
                await _delete_share_state(call, group_id)
            await call.broker.groups.delete(group_id)
            call.changed("group_deleted", group=group_id)
        except TidemillError as error:
            failure = error
        results.append(call.part("DeletableGroupResult", group_id=group_id, error_code=error_code(failure)))
    return call.response(results=tuple(results))


async def _delete_share_state(call: Call, group_id: str) -> None:
    async def delete(partitions: Partitions) -> Partitions:
        await call.broker.share_states.remove(group_id, partitions)
        return NO_PARTITIONS

    await call.broker.groups.change_share_state(group_id, delete)
