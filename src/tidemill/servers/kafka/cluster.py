"""The APIs about brokers: the cluster, coordinators, log directories, elections and reassignments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tidemill.cluster.core.registration import BrokerAddress
from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    InvalidRequest,
    TidemillError,
    TransactionalIdAuthorizationFailed,
)
from tidemill.model.topics import GROUP_OFFSETS, SHARE_STATE, TRANSACTION_STATE
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.servers.kafka.authorized_operations import cluster_operations
from tidemill.shares.core.durable_state import read_share_key

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
    from kio.schema.alter_partition_reassignments.v1.response import AlterPartitionReassignmentsResponse
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
    from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
    from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
    from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
    from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindCoordinatorRequestV3
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
    from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
    from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
    from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_FROM = 6
_PREFERRED = 0
_BROKERS = 1
_BATCHED_FROM = 4
_TOP_LEVEL_ERROR_FROM = {35: 3, 43: 1}
"""The version from which a response has an error of the whole request."""
_FINAL = (InvalidRequest, ClusterAuthorizationFailed, GroupAuthorizationFailed, TransactionalIdAuthorizationFailed)
"""Errors of FindCoordinator that a later request does not change."""


async def describe_cluster(
    call: Call["DescribeClusterResponse"], request: "DescribeClusterRequest"
) -> "DescribeClusterResponse":
    """The brokers and their controller."""
    if getattr(request, "endpoint_type", _BROKERS) != _BROKERS:
        raise InvalidRequest(
            f"endpoint type {request.endpoint_type} is not supported: controllers have no separate address"
        )
    broker = call.broker
    nodes = [_described(call, node, fenced=False) for node in broker.view.brokers(call.listener)]
    if getattr(request, "include_fenced_brokers", False):
        nodes += [_described(call, node, fenced=True) for node in broker.view.missing_brokers()]
    return call.response(
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.view.controller_id,
        brokers=tuple(nodes),
        cluster_authorized_operations=cluster_operations(call, asked=request.include_cluster_authorized_operations),
    )


def _described(call: Call, node: BrokerAddress, *, fenced: bool) -> Any:
    fields = {"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack, "is_fenced": fenced}
    return call.part("DescribeClusterBroker", **fields)


async def unregister_broker(
    call: Call["UnregisterBrokerResponse"], request: "UnregisterBrokerRequest"
) -> "UnregisterBrokerResponse":
    """Remove a broker that will not return from the cluster."""
    call.check_cluster(Operation.ALTER)
    await call.broker.membership.forget(request.broker_id)
    call.changed("broker_unregistered", broker=request.broker_id)
    return call.response()


async def find_coordinator(
    call: Call["FindCoordinatorResponse"], request: "FindCoordinatorRequest"
) -> "FindCoordinatorResponse":
    """The coordinators of groups or transactional ids: the leaders of their partitions of the internal topic."""
    kind = getattr(request, "key_type", _GROUP)
    if call.version < _BATCHED_FROM:
        return call.response(**(await _coordinator(call, kind, cast("FindCoordinatorRequestV3", request).key)))
    coordinators = [
        call.part("Coordinator", key=key, **(await _coordinator(call, kind, key)))
        async for key in call.in_slices(dict.fromkeys(request.coordinator_keys))
    ]
    return call.response(coordinators=tuple(coordinators))


async def _coordinator(call: Call, kind: int, key: str) -> dict[str, Any]:
    broker = call.broker
    try:
        node = await _coordinator_node(call, kind, key)
        address = broker.view.address_of(node, call.listener)
        if address is None:
            raise CoordinatorNotAvailable(f"{key[:60]!r} has no coordinator at the moment; try again")
    except TidemillError as error:
        known = error if isinstance(error, _FINAL) else CoordinatorNotAvailable(str(error))
        refusal = {"error_code": error_code(known), "error_message": error_message(known)}
        return {"node_id": -1, "host": "", "port": -1, **refusal}
    host, port = address
    return {"node_id": node, "host": host, "port": port, "error_code": 0, "error_message": None}


async def _coordinator_node(call: Call, kind: int, key: str) -> int:
    coordinators = call.broker.coordinators
    if kind == _GROUP:
        call.check(Operation.DESCRIBE, ResourceType.GROUP, key)
        await coordinators.ensure(GROUP_OFFSETS)
        return coordinators.of_group(key)
    if kind == _TRANSACTION:
        call.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
        await coordinators.ensure(TRANSACTION_STATE)
        return coordinators.of_transaction(key)
    if kind != _SHARE or call.version < _SHARE_FROM:
        known = "0 (group), 1 (transaction) or, from version 6, 2 (share partition)"
        raise InvalidRequest(f"coordinator type {kind} is not supported; use {known}")
    call.check_cluster(Operation.CLUSTER_ACTION)
    share_key = read_share_key(key)
    await coordinators.ensure(SHARE_STATE)
    return coordinators.of_share(share_key)


async def describe_log_dirs(
    call: Call["DescribeLogDirsResponse"], request: "DescribeLogDirsRequest"
) -> "DescribeLogDirsResponse":
    """The size of each partition and the free space; null asks for all partitions."""
    broker = call.broker
    denial = _cluster_denial(call, Operation.DESCRIBE)
    if denial is not None:
        return call.response(error_code=denial.code, results=())
    if request.topics is None:
        asked = [
            (topic.name, [info.index for info in topic.partitions])
            async for topic in call.in_slices(broker.view.topics())
        ]
    else:
        asked = [(topic.topic, list(topic.partitions)) async for topic in call.in_slices(request.topics)]
    topics = []
    async for name, indexes in call.in_slices(asked):
        found = [_directory_part(call, name, index) async for index in call.in_slices(indexes)]
        partitions = tuple(part for part in found if part is not None)
        if partitions:
            topics.append(call.part("DescribeLogDirsTopic", name=name, partitions=partitions))
    usage = await broker.partitions.store.usage()
    result = call.part(
        "DescribeLogDirsResult",
        log_dir=usage.place,
        topics=tuple(topics),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )
    return call.response(results=(result,))


def _directory_part(call: Call, topic: str, index: int) -> Any | None:
    try:
        size = call.broker.view.partition(topic, index).size_bytes
    except TidemillError:
        return None
    return call.part("DescribeLogDirsPartition", partition_index=index, partition_size=size, offset_lag=0)


async def elect_leaders(call: Call["ElectLeadersResponse"], request: "ElectLeadersRequest") -> "ElectLeadersResponse":
    """Elect leaders on demand; null asks for every partition whose preferred replica could lead but does not."""
    unclean = getattr(request, "election_type", _PREFERRED) != _PREFERRED
    denial = _cluster_denial(call, Operation.ALTER)
    if request.topic_partitions is None:
        asked: list[tuple[str, Sequence[int]]] = [
            (name, [index]) for name, index in call.broker.reassignments.not_preferred()
        ]
    else:
        asked = [(topic.topic, list(topic.partitions)) async for topic in call.in_slices(request.topic_partitions)]
    results = []
    async for name, indexes in call.in_slices(asked):
        parts = [await _election(call, name, index, denial, unclean=unclean) async for index in call.in_slices(indexes)]
        results.append(call.part("ReplicaElectionResult", topic=name, partition_result=tuple(parts)))
    return call.response(replica_election_results=tuple(results))


def _cluster_denial(call: Call, operation: Operation) -> ClusterAuthorizationFailed | None:
    """The error for a client that may not do this, where the version has no field for it; else it is raised."""
    try:
        call.check_cluster(operation)
    except ClusterAuthorizationFailed as error:
        if call.version >= _TOP_LEVEL_ERROR_FROM[call.api_key]:
            raise
        return error
    return None


async def _election(
    call: Call, topic: str, index: int, denial: ClusterAuthorizationFailed | None, *, unclean: bool
) -> Any:
    error: TidemillError | None = denial
    moves = call.broker.reassignments
    try:
        if denial is None:
            await (moves.elect_unclean(topic, index) if unclean else moves.elect_preferred(topic, index))
            call.changed("leader_elected", topic=topic, partition=index, unclean=unclean)
    except TidemillError as caught:
        error = caught
    return call.part(
        "PartitionResult", partition_id=index, error_code=error_code(error), error_message=error_message(error)
    )


async def alter_partition_reassignments(
    call: Call["AlterPartitionReassignmentsResponse"], request: "AlterPartitionReassignmentsRequest"
) -> "AlterPartitionReassignmentsResponse":
    """Start to move partitions to other brokers; null replicas cancel a move."""
    call.check_cluster(Operation.ALTER)
    growth = getattr(request, "allow_replication_factor_change", True)
    responses = []
    async for topic in call.in_slices(request.topics):
        partitions = [
            await _reassigned(call, topic.name, part, growth=growth) async for part in call.in_slices(topic.partitions)
        ]
        responses.append(call.part("ReassignableTopicResponse", name=topic.name, partitions=tuple(partitions)))
    return call.response(allow_replication_factor_change=growth, responses=tuple(responses))


async def _reassigned(call: Call, topic: str, asked: Any, *, growth: bool) -> Any:
    error: TidemillError | None = None
    index, moves = asked.partition_index, call.broker.reassignments
    try:
        if asked.replicas is None:
            await moves.cancel(topic, index)
        else:
            await moves.reassign(topic, index, asked.replicas, same_number=not growth)
        call.changed("partition_reassigned", topic=topic, partition=index, replicas=asked.replicas)
    except TidemillError as caught:
        error = caught
    return call.part(
        "ReassignablePartitionResponse",
        partition_index=index,
        error_code=error_code(error),
        error_message=error_message(error),
    )


async def list_partition_reassignments(
    call: Call["ListPartitionReassignmentsResponse"], request: "ListPartitionReassignmentsRequest"
) -> "ListPartitionReassignmentsResponse":
    """The reassignments in progress, of these topics or of all."""
    call.check_cluster(Operation.DESCRIBE)
    wanted = None
    if request.topics is not None:
        wanted = {
            (topic.name, index)
            async for topic in call.in_slices(request.topics)
            async for index in call.in_slices(topic.partition_indexes)
        }
    found: dict[str, list[Any]] = {}
    async for topic, info in call.in_slices(call.broker.reassignments.under_way()):
        if wanted is None or (topic.name, info.index) in wanted:
            part = call.part(
                "OngoingPartitionReassignment",
                partition_index=info.index,
                replicas=info.replicas,
                adding_replicas=info.adding,
                removing_replicas=info.removing,
            )
            found.setdefault(topic.name, []).append(part)
    topics = (
        call.part("OngoingTopicReassignment", name=name, partitions=tuple(parts)) for name, parts in found.items()
    )
    return call.response(topics=tuple(topics))
