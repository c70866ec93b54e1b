"""The group APIs: classic membership here, offsets and consumer groups in the modules beside it.

An answer's fields have values of their own when it is an error: a refused join has generation -1, an
empty protocol and the member's own id.
"""

from datetime import timedelta
from typing import Any

from tidemill.groups.core.descriptions import DescribedGroup
from tidemill.groups.core.messages import JoinAnswer, JoinRequest, Leaver, Left, SyncRequest
from tidemill.groups.core.shard import group_filter
from tidemill.model.errors import GroupIdNotFound, TidemillError, UnknownMemberId
from tidemill.servers.kafka import consumer_groups, group_offsets
from tidemill.servers.kafka.api import Api, Call, Feature, error_code, error_message
from tidemill.servers.kafka.authorized_operations import NOT_ASKED, ON_GROUP

_TAKES_ID_FIRST_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIPS_ASSIGNMENT_FROM = 9
_LEAVES_MANY_FROM = 3
_TELLS_NOT_FOUND_FROM = 6
_MILLISECOND = timedelta(milliseconds=1)


async def join_group(call: Call, request: Any) -> Any:
    """The answer waits until the generation is complete; many members then get theirs one after the other."""
    try:
        answer = await call.broker.groups.join(_join_request(call, request))
    except TidemillError as error:
        return await _joined(call, JoinAnswer(request.member_id), error)
    return await _joined(call, answer, answer.error)


def _join_request(call: Call, request: Any) -> JoinRequest:
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


async def _joined(call: Call, answer: JoinAnswer, error: TidemillError | None) -> Any:
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


async def sync_group(call: Call, request: Any) -> Any:
    """The answer waits until the leader has sent the assignments; many members then get theirs one after the other."""
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


async def heartbeat(call: Call, request: Any) -> Any:
    """A sign of life."""
    instance_id = getattr(request, "group_instance_id", None)
    call.broker.groups.heartbeat(request.group_id, request.generation_id, request.member_id, instance_id)
    return call.response()


async def leave_group(call: Call, request: Any) -> Any:
    """One member, or from version 3 on many, each with its own result."""
    if call.version < _LEAVES_MANY_FROM:
        left = await call.broker.groups.leave(request.group_id, [Leaver(request.member_id)])
        return call.response(error_code=error_code(left[0].error))
    leavers = [Leaver(member.member_id, member.group_instance_id) async for member in call.in_slices(request.members)]
    try:
        left = await call.broker.groups.leave(request.group_id, leavers)
    except UnknownMemberId as error:  # a group that is not there has none of them
        left = [Left(leaver, error) for leaver in leavers]
    return call.response(members=tuple([_left(call, each) async for each in call.in_slices(left)]))


def _left(call: Call, left: Left) -> Any:
    return call.part(
        "MemberResponse",
        member_id=left.leaver.member_id,
        group_instance_id=left.leaver.instance_id,
        error_code=error_code(left.error),
    )


async def describe_groups(call: Call, request: Any) -> Any:
    """Classic groups; one that does not exist is dead, and from version 6 on an error."""
    asked = getattr(request, "include_authorized_operations", False)
    distinct = dict.fromkeys(request.groups)
    groups = [await _described(call, group_id, asked=asked) async for group_id in call.in_slices(distinct)]
    return call.response(groups=tuple(groups))


async def _described(call: Call, group_id: str, *, asked: bool) -> Any:
    failure: TidemillError | None = None
    try:
        group = call.broker.groups.describe(group_id)
    except GroupIdNotFound as error:
        group = DescribedGroup(group_id, "Dead")
        failure = error if call.version >= _TELLS_NOT_FOUND_FROM else None
    except TidemillError as error:
        group, failure = DescribedGroup(group_id, ""), error
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
        authorized_operations=ON_GROUP if asked else NOT_ASKED,
    )


async def list_groups(call: Call, request: Any) -> Any:
    """Every group that passes the filters."""
    groups = call.broker.groups
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
        if (group := groups.listed(group_id)) is not None and passes(group)
    ]
    return call.response(groups=tuple(listed))


async def delete_groups(call: Call, request: Any) -> Any:
    """Each group on its own: only one without members goes."""
    results = []
    async for group_id in call.in_slices(request.groups_names):
        failure: TidemillError | None = None
        try:
            await call.broker.groups.delete(group_id)
        except TidemillError as error:
            failure = error
        results.append(call.part("DeletableGroupResult", group_id=group_id, error_code=error_code(failure)))
    return call.response(results=tuple(results))


APIS = [
    Api(key=11, versions=(0, 9), handle=join_group, parked=True),
    Api(key=12, versions=(0, 4), handle=heartbeat),
    Api(key=13, versions=(0, 5), handle=leave_group),
    Api(key=14, versions=(0, 5), handle=sync_group, parked=True),
    Api(key=15, versions=(0, 6), handle=describe_groups),
    Api(key=16, versions=(0, 5), handle=list_groups),
    Api(key=42, versions=(0, 2), handle=delete_groups),
    *group_offsets.APIS,
    *consumer_groups.APIS,
]
FEATURES = [Feature("group.version", 0, 1, 1)]
