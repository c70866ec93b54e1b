"""The topics as groups see them: name, id and number of partitions."""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID


class TopicShape(NamedTuple):
    """One topic."""

    name: str
    topic_id: UUID
    partitions: int


class TopicCatalog:
    """All topics at one moment. `version` grows with every change, so equal versions mean equal topics."""

    __slots__ = ("by_id", "by_name", "partitions", "version")

    def __init__(self, version: int, topics: Iterable[TopicShape] = ()) -> None:
        self.version = version
        self.by_name = {topic.name: topic for topic in topics}
        self.by_id = {topic.topic_id: topic for topic in self.by_name.values()}
        self.partitions = sum(topic.partitions for topic in self.by_name.values())
