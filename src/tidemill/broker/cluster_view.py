"""The cluster as this broker shows it to clients: topics, partition leaders, brokers and their addresses."""

from collections.abc import Callable, Mapping
from uuid import UUID

from tidemill.broker.partitions import Partitions
from tidemill.broker.topics import Topics
from tidemill.cluster.core.image import Image, Topic
from tidemill.cluster.core.registration import BrokerAddress, Endpoint
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.errors import NotLeaderOrFollower
from tidemill.model.topics import TopicPartition
from tidemill.streams.partition import Partition


class ClusterView:
    """Read-only lookups. `check_session` makes this broker step down first when its session is over."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        topics: Topics,
        partitions: Partitions,
        *,
        node_id: int,
        rack: str | None,
        is_cluster: bool,
        check_session: Callable[[], None],
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._partitions = partitions
        self._node_id = node_id
        self._rack = rack
        self._is_cluster = is_cluster
        self._check_session = check_session
        self._address = ("", 0)
        self._listeners: dict[str, Endpoint] = {}
        self._address_changes = 0

    @property
    def image(self) -> Image:
        """All topics and brokers."""
        return self._topics.image

    @property
    def version(self) -> int:
        """Grows with every change of topics or brokers."""
        return self._topics.image.version + self._address_changes + self._partitions.outages

    @property
    def address(self) -> tuple[str, int]:
        """The Kafka address of this broker for other brokers; port 0 while it has none."""
        return self._address

    @property
    def listeners(self) -> Mapping[str, Endpoint]:
        """The Kafka addresses of this broker for clients, by the name of the listener."""
        return self._listeners

    def advertise(self, host: str, port: int, listeners: Mapping[str, Endpoint] | None = None) -> None:
        """Set the Kafka address that brokers connect to, and those of clients if there are several listeners."""
        self._address = (host, port)
        self._listeners = dict(listeners or {})
        self._address_changes += 1

    @property
    def controller_id(self) -> int:
        """The broker that is the controller."""
        return self._metadata.view.controller if self._is_cluster else self._node_id

    def brokers(self, listener: str = "") -> list[BrokerAddress]:
        """Every broker with its address for clients of a listener; without one, its address for other brokers."""
        own = BrokerAddress(self._node_id, *self._listeners.get(listener, self._address), self._rack)
        others = (each for each in self._metadata.image.brokers.values() if each.node_id != self._node_id)
        found = ((each, each.address_for(listener) if listener else each.kafka) for each in others)
        known = [BrokerAddress(each.node_id, *where, each.rack) for each, where in found if where is not None]
        return sorted([own, *known])

    def missing_brokers(self) -> list[BrokerAddress]:
        """Brokers that were registered once, are not now and were not unregistered; with their last address."""
        missing = self._metadata.image.missing()
        return [BrokerAddress(each.node_id, *(each.kafka or ("", 0)), each.rack) for each in missing]

    def address_of(self, node_id: int, listener: str = "") -> tuple[str, int] | None:
        """The Kafka address of a broker that is registered, as `brokers` has it."""
        return next(((each.host, each.port) for each in self.brokers(listener) if each.node_id == node_id), None)

    def topic(self, name: str) -> Topic | None:
        """The topic with this name."""
        return self._topics.image.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """The topic with this id."""
        return self._topics.image.by_id.get(topic_id)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topics(self) -> list[Topic]:
        """Every topic."""
        return list(self._topics.image.by_name.values())

    def leader_of(self, partition: TopicPartition) -> int:
        """The leader of a partition; this broker for an unknown one, because it can respond with the right error."""
        known = self.topic(partition.topic)
        if known is None or partition.partition >= len(known.partitions):
            return self._node_id
        return known.partitions[partition.partition].leader

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; UnknownTopicOrPartition when it does not exist, NotLeaderOrFollower when it is not here."""
        self._check_session()
        found = self._partitions.find(topic, index)
        if found is not None:
            return found
        known = self.topic(topic)
        if known is not None and 0 <= index < len(known.partitions):
            info = known.partitions[index]
            if self._node_id not in info.replicas:
                raise NotLeaderOrFollower(f"{topic}-{index} is on brokers {list(info.replicas)}")
            if self._node_id != info.leader and self._partitions.is_shared(known):
                raise NotLeaderOrFollower(f"{topic}-{index} is led by broker {info.leader}")
        return self._partitions.get(topic, index)
