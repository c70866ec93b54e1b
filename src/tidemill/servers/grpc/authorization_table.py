"""What each gRPC method checks: operation and resource type. A timeline is a resource of type TOPIC.

The handlers make the checks with `call.rights`. This table says the same for readers: the page
docs/reference/authorization.md is made from it. A test compares it with the checks that the handlers make. A method
without a row fails a test. A call that a broker forwards is checked with the rights of the client that it came from.
"""

from tidemill.security.core.api_rights import ApiRight, ApiRights, api_rights
from tidemill.security.core.resources import Operation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_LEFT_OUT = "a list leaves out the others"
_ANY_CLUSTER_RIGHT = "a right on the cluster is enough for every topic"
_TARGET = "on the topic or timeline of the setting dead_letter"

_READ_GROUP = api_rights((Operation.READ, _GROUP))
_PRODUCER = ApiRight(Operation.WRITE, _TOPIC, "on the timeline of the session, which belongs to the user who opened it")

_LOADS = "to see the load of the brokers"
AUTHORIZATION: dict[str, ApiRights] = {
    "BrokerService/CreateTopic": api_rights(
        ApiRight(Operation.CREATE, _CLUSTER, _ANY_CLUSTER_RIGHT), (Operation.CREATE, _TOPIC)
    ),
    "BrokerService/DeleteTopic": api_rights(
        ApiRight(Operation.DELETE, _CLUSTER, _ANY_CLUSTER_RIGHT), (Operation.DELETE, _TOPIC)
    ),
    "BrokerService/ListTopics": api_rights(ApiRight(Operation.DESCRIBE, _TOPIC, _LEFT_OUT)),
    "BrokerService/GetMetadata": api_rights(
        ApiRight(Operation.DESCRIBE, _TOPIC, _LEFT_OUT), ApiRight(Operation.DESCRIBE, _CLUSTER, _LOADS)
    ),
    "BrokerService/ChooseBrokers": api_rights(
        ApiRight(Operation.DESCRIBE, _TOPIC, "if the call names one"), ApiRight(Operation.DESCRIBE, _CLUSTER, _LOADS)
    ),
    "BrokerService/InitProducer": api_rights(
        ApiRight(Operation.IDEMPOTENT_WRITE, _CLUSTER, "WRITE on any topic is enough"),
        ApiRight(Operation.WRITE, _TOPIC, "on at least one topic; IDEMPOTENT_WRITE is enough"),
    ),
    "BrokerService/Produce": api_rights((Operation.WRITE, _TOPIC)),
    "BrokerService/Subscribe": api_rights((Operation.READ, _GROUP), (Operation.DESCRIBE, _TOPIC)),
    "BrokerService/Poll": api_rights(
        (Operation.READ, _GROUP), (Operation.DESCRIBE, _TOPIC), ApiRight(Operation.READ, _TOPIC, "to read its records")
    ),
    "BrokerService/Commit": api_rights((Operation.READ, _GROUP), (Operation.READ, _TOPIC)),
    "BrokerService/Unsubscribe": _READ_GROUP,
    "BrokerService/Consume": api_rights((Operation.READ, _TOPIC)),
    "BrokerService/Replicate": api_rights(ApiRight(Operation.DESCRIBE, _TOPIC, _LEFT_OUT)),
    "TimelineService/Handshake": api_rights(
        ApiRight(Operation.WRITE, _TOPIC, "for producers"), ApiRight(Operation.READ, _TOPIC, "for consumers")
    ),
    "TimelineService/CreateTimeline": api_rights(
        ApiRight(Operation.CREATE, _CLUSTER, "a right on the cluster is enough for every timeline"),
        (Operation.CREATE, _TOPIC),
        ApiRight(Operation.WRITE, _TOPIC, _TARGET),
    ),
    "TimelineService/AlterTimeline": api_rights(
        (Operation.ALTER_CONFIGS, _TOPIC), ApiRight(Operation.WRITE, _TOPIC, _TARGET)
    ),
    "TimelineService/DeleteTimeline": api_rights((Operation.DELETE, _TOPIC)),
    "TimelineService/DescribeTimeline": api_rights((Operation.DESCRIBE, _TOPIC)),
    "TimelineService/ListTimelines": api_rights(ApiRight(Operation.DESCRIBE, _TOPIC, _LEFT_OUT)),
    "TimelineService/Schedule": api_rights(_PRODUCER),
    "TimelineService/Cancel": api_rights(_PRODUCER),
    "TimelineService/Move": api_rights(_PRODUCER),
    "TimelineService/Work": api_rights(
        ApiRight(Operation.READ, _TOPIC, "checked every second; the stream ends with the login")
    ),
    "TimelineService/Count": api_rights((Operation.DESCRIBE, _TOPIC)),
    "TimelineService/ListMessages": api_rights((Operation.READ, _TOPIC)),
    "TimelineService/Histogram": api_rights((Operation.DESCRIBE, _TOPIC)),
    "TimelineService/Ping": api_rights(note="returns the time only"),
}
