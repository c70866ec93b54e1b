"""The record that a handler receives."""

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
    # The assignment of the partition that the record belongs to. Results of an earlier assignment are dropped.
    assignment: int = 0

    @property
    def place(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)
