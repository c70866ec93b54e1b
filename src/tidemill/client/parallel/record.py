"""A record as a handler sees it."""

from typing import NamedTuple

from tidemill.model.topics import TopicPartition


class ParallelRecord(NamedTuple):
    """One record of a topic; `attempt` counts from 1."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    attempt: int = 1
    # Which assignment of the partition it belongs to: results of an earlier one are dropped.
    assignment: int = 0

    @property
    def place(self) -> TopicPartition:
        """Where it came from."""
        return TopicPartition(self.topic, self.partition)
