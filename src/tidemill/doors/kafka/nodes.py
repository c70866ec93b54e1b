"""What clients ask about brokers: the cluster, the coordinator of a key, log directories, elections, reassignments.

One broker carries everything, so it coordinates every group and transaction, every partition has the only leader it
can have, and no partition ever moves.
"""

from typing import Any

from tidemill.broker.broker import BrokerAddress
from tidemill.doors.kafka.api import Api, Call, error_code, error_message
from tidemill.doors.kafka.operations import NOT_ASKED, ON_CLUSTER
from tidemill.model.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    InvalidRequest,
    NoReassignmentInProgress,
    TidemillError,
    UnknownTopicOrPartition,
)

_GROUP, _TRANSACTION = 0, 1
_BROKERS = 1
_BATCHED_FROM = 4


async def describe_cluster(call: Call, request: Any) -> Any:
    """The brokers and their controller."""
    if getattr(request, "endpoint_type", _BROKERS) != _BROKERS:
        raise InvalidRequest("controllers have no address of their own here")
    broker = call.broker
    nodes = tuple(
        call.part("DescribeClusterBroker", broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.brokers()
    )
    return call.response(
        endpoint_type=_BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        brokers=nodes,
        cluster_authorized_operations=ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED,
    )


async def find_coordinator(call: Call, request: Any) -> Any:
    """The broker that coordinates a group or a transactional id."""
    node = next(each for each in call.broker.brokers() if each.node_id == call.broker.node_id)
    kind = getattr(request, "key_type", _GROUP)
    error = None if kind in {_GROUP, _TRANSACTION} else InvalidRequest(f"there are no coordinators of type {kind}")
    if call.version < _BATCHED_FROM:
        return call.response(**_coordinator(node, error))
    coordinators = tuple(
        call.part("Coordinator", key=key, **_coordinator(node, error)) for key in request.coordinator_keys
    )
    return call.response(coordinators=coordinators)


def _coordinator(node: BrokerAddress, error: TidemillError | None) -> dict[str, Any]:
    if error is not None:
        refusal = {"error_code": error_code(error), "error_message": error_message(error)}
        return {"node_id": -1, "host": "", "port": -1, **refusal}
    return {"node_id": node.node_id, "host": node.host, "port": node.port, "error_code": 0, "error_message": None}


async def describe_log_dirs(call: Call, request: Any) -> Any:
    """How large each partition is, and how much room there is; null asks for all partitions."""
    broker = call.broker
    if request.topics is None:
        asked = [(topic.name, [info.index for info in topic.partitions]) for topic in broker.topics()]
    else:
        asked = [(topic.topic, list(topic.partitions)) for topic in request.topics]
    topics = []
    for name, indexes in asked:
        partitions = tuple(part for index in indexes if (part := _directory_part(call, name, index)) is not None)
        if partitions:
            topics.append(call.part("DescribeLogDirsTopic", name=name, partitions=partitions))
    room = await broker.partitions.store.room()
    result = call.part(
        "DescribeLogDirsResult",
        log_dir=room.place,
        topics=tuple(topics),
        total_bytes=room.total_bytes,
        usable_bytes=room.usable_bytes,
    )
    return call.response(results=(result,))


def _directory_part(call: Call, topic: str, index: int) -> Any | None:
    try:
        size = call.broker.partition(topic, index).size_bytes
    except TidemillError:
        return None
    return call.part("DescribeLogDirsPartition", partition_index=index, partition_size=size, offset_lag=0)


async def elect_leaders(call: Call, request: Any) -> Any:
    """Every partition that exists has its preferred leader; null asks for those that need an election: none."""
    results = tuple(
        call.part(
            "ReplicaElectionResult",
            topic=topic.topic,
            partition_result=tuple(_election(call, topic.topic, index) for index in topic.partitions),
        )
        for topic in request.topic_partitions or ()
    )
    return call.response(replica_election_results=results)


def _election(call: Call, topic: str, index: int) -> Any:
    error: TidemillError = ElectionNotNeeded() if _exists(call, topic, index) else UnknownTopicOrPartition()
    return call.part(
        "PartitionResult", partition_id=index, error_code=error_code(error), error_message=error_message(error)
    )


def _exists(call: Call, topic: str, index: int) -> bool:
    known = call.broker.topic(topic)
    return known is not None and 0 <= index < len(known.partitions)


async def alter_partition_reassignments(call: Call, request: Any) -> Any:
    """A partition may be assigned to where it is; there is no other place."""
    responses = tuple(
        call.part(
            "ReassignableTopicResponse",
            name=topic.name,
            partitions=tuple(_reassigned(call, topic.name, part) for part in topic.partitions),
        )
        for topic in request.topics
    )
    return call.response(
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True), responses=responses
    )


def _reassigned(call: Call, topic: str, asked: Any) -> Any:
    error: TidemillError | None = None
    known = call.broker.topic(topic)
    if known is None or not _exists(call, topic, asked.partition_index):
        error = UnknownTopicOrPartition()
    elif asked.replicas is None:
        error = NoReassignmentInProgress()
    elif tuple(asked.replicas) != known.partitions[asked.partition_index].replicas:
        error = InvalidReplicaAssignment("the cluster has no other broker")
    return call.part(
        "ReassignablePartitionResponse",
        partition_index=asked.partition_index,
        error_code=error_code(error),
        error_message=error_message(error),
    )


async def list_partition_reassignments(call: Call, request: Any) -> Any:
    """No partition is on its way."""
    _ = request
    return call.response(topics=())


APIS = [
    Api(key=10, versions=(0, 6), handle=find_coordinator),
    Api(key=35, versions=(1, 4), handle=describe_log_dirs),
    Api(key=43, versions=(0, 2), handle=elect_leaders),
    Api(key=45, versions=(0, 1), handle=alter_partition_reassignments),
    Api(key=46, versions=(0, 0), handle=list_partition_reassignments),
    Api(key=60, versions=(0, 2), handle=describe_cluster),
]
