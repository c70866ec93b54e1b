"""What the client of a query may see: the topics, groups and timelines whose rows it gets.

The broker decides this before rows leave it, never the process that runs the query.
"""

from collections.abc import Iterable

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.timelines.core.timeline import resource_of


class VisibleRows:
    """The questions of one query to the authorizer, each asked once."""

    def __init__(self, rights: ClientRights) -> None:
        self.rights = rights
        self._known: dict[tuple[Operation, ResourceType, str], bool] = {}

    def reads(self, topic: str) -> bool:
        """Whether the client gets the records of a topic."""
        return self._allows(Operation.READ, ResourceType.TOPIC, topic)

    def describes(self, topic: str) -> bool:
        """Whether the client gets the partitions and offsets of a topic."""
        return self._allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def describes_group(self, group: str) -> bool:
        """Whether the client gets the members, offsets and lag of a group."""
        return self._allows(Operation.DESCRIBE, ResourceType.GROUP, group)

    def reads_timeline(self, timeline: str) -> bool:
        """Whether the client gets the messages of a timeline."""
        return self.reads(resource_of(timeline))

    def check_named(self, topics: Iterable[str]) -> None:
        """Raise TopicAuthorizationFailed if a query names a topic that the client may not read.

        As in Kafka, the error is the same whether the topic exists or not.
        """
        for topic in sorted(topics):
            self.rights.check(Operation.READ, ResourceType.TOPIC, topic)

    def _allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        if not self.rights.are_checked:
            return True
        key = operation, resource_type, name
        if key not in self._known:
            self._known[key] = self.rights.allows(*key)
        return self._known[key]
