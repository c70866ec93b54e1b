"""What all pages of one topic share: its name, its paths, its problems, and what the client may do with it.

A page of a topic puts `topic_frame(context, call)` into its values as `frame`, and its template extends
`topics/frame.html`.
"""

from dataclasses import dataclass
from typing import Any

from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.topic_access import described_topic
from tidemill.servers.http.console.rendering import segment
from tidemill.servers.http.core.topic_health import TopicHealth, health_of_topic


@dataclass(frozen=True, slots=True)
class TopicFrame:
    """One topic, as the client may see it.

    A read-only console allows no change. Of an internal topic only settings can be changed.
    """

    name: str
    base: str
    """The path of its pages."""
    api: str
    """Its path in the JSON API."""
    is_internal: bool
    partitions: int
    replicas: int
    health: TopicHealth
    may_read: bool
    may_write: bool
    may_alter: bool
    may_delete: bool
    sees_settings: bool
    may_alter_settings: bool


def topic_frame(context: ApiContext, call: ApiCall[Any, Any]) -> TopicFrame:
    """The topic that the path names. A client that may not describe it gets the error of the Kafka server."""
    topic = described_topic(context.broker, call.rights, call.name("topic"))

    def may(operation: Operation) -> bool:
        return call.rights.allows(operation, ResourceType.TOPIC, topic.name)

    may_change = not context.is_readonly and not topic.internal
    return TopicFrame(
        name=topic.name,
        base=f"/topics/{segment(topic.name)}",
        api=f"/api/v1/topics/{segment(topic.name)}",
        is_internal=topic.internal,
        partitions=len(topic.partitions),
        replicas=max(len(each.replicas) for each in topic.partitions),
        health=health_of_topic(topic),
        may_read=may(Operation.READ),
        may_write=may_change and may(Operation.WRITE),
        may_alter=may_change and may(Operation.ALTER),
        may_delete=may_change and may(Operation.DELETE),
        sees_settings=may(Operation.DESCRIBE_CONFIGS),
        may_alter_settings=not context.is_readonly and may(Operation.ALTER_CONFIGS),
    )
