"""`authorizedOperations` of responses: what the client may do, as Kafka's bit sets."""

from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.kafka.api import Call

NOT_ASKED = -(2**31)


def cluster_operations(call: Call, *, asked: bool) -> int:
    """The operations on the cluster; 0 for a client that may not describe it."""
    if not asked:
        return NOT_ASKED
    if not call.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return call.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def group_operations(call: Call, group_id: str, *, asked: bool) -> int:
    """The operations on a group."""
    return call.operations(ResourceType.GROUP, group_id) if asked else NOT_ASKED


def topic_operations(call: Call, topic: str, *, asked: bool) -> int:
    """The operations on a topic."""
    return call.operations(ResourceType.TOPIC, topic) if asked else NOT_ASKED
