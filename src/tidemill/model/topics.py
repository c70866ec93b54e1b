"""Topics and partitions: their names, and which names are allowed."""

import re
from typing import NamedTuple

from tidemill.model.errors import InvalidTopic

NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")

GROUP_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
WAITING = "__waiting"
PIPELINES = "__pipelines"
"""The last report of each pipeline. Clients send reports to it, and the broker stores those that it accepts."""
SHARE_STATE = "__share_group_state"
"""What share groups have done with the records of each partition."""
TIMELINES = "__timelines"
"""What has changed in replicated timelines."""
VITAL = frozenset({GROUP_OFFSETS, TRANSACTION_STATE})
"""The topics that the broker must write even when the disk is full."""
INTERNAL = VITAL | {WAITING, PIPELINES, SHARE_STATE, TIMELINES}


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class UnknownTopic(NamedTuple):
    """A topic with records in the data directory that coordination does not have."""

    name: str
    topic_id: str
    """Empty if the directory does not record it."""
    partitions: int


def refuse_internal(name: str) -> None:
    """Reject changes to a topic that holds the broker's own state. Clients may read it."""
    if name in INTERNAL:
        raise InvalidTopic(f"{name} is kept by the broker itself")


def check_topic_name(name: str) -> None:
    """Reject a name that Kafka would reject. The name becomes a folder, so this check also keeps paths safe."""
    if name in {"", ".", ".."} or len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        rule = f"use 1 to {NAME_LENGTH_MAX} letters, digits, dots, dashes and underscores"
        raise InvalidTopic(f"{name[:60]!r} is not a topic name; {rule}")
