"""Finds the topic of a request, with the rights and the errors of the Kafka server."""

from tidemill.broker.broker import BrokerNode
from tidemill.cluster.core.image import Topic
from tidemill.model.errors import UnknownTopicOrPartition
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation
from tidemill.servers.http.api.api_problem import ApiProblem

NAME_SHOWN_CHARS = 100


def described_topic(broker: BrokerNode, rights: ClientRights, name: str) -> Topic:
    """The topic. A client without the right to describe it does not learn whether it exists."""
    rights.check_topic(Operation.DESCRIBE, name)
    topic = broker.view.topic(name)
    if topic is None:
        shown = name[:NAME_SHOWN_CHARS]
        raise UnknownTopicOrPartition(f"there is no topic {shown}; see: tidemill topic list")
    return topic


def readable_topic(broker: BrokerNode, rights: ClientRights, name: str) -> Topic:
    """The topic, of which the client may read records."""
    topic = described_topic(broker, rights, name)
    rights.check_topic(Operation.READ, name)
    return topic


def check_partition_of(topic: Topic, partition: int) -> None:
    """ApiProblem unless the topic has this partition."""
    if not 0 <= partition < len(topic.partitions):
        raise ApiProblem(
            404, f"topic {topic.name} has partitions 0 to {len(topic.partitions) - 1}, not {str(partition)[:20]}"
        )
