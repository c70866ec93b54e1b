"""Where a reset moves the committed offsets of a group. A new offset is always within the log of its partition."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidemill.model.topics import TopicPartition

NO_RECORD = -1
"""What ListOffsets answers when no record is that late."""


class ResetPosition(NamedTuple):
    """What is known of one partition before the reset."""

    committed: int | None
    start: int
    end: int


class OffsetMove(NamedTuple):
    """The change of one partition."""

    place: TopicPartition
    previous: int | None
    to: int

    @property
    def records(self) -> int | None:
        """How many offsets are skipped, or read again if negative; None without a committed offset."""
        return None if self.previous is None else self.to - self.previous


Target = Callable[[TopicPartition, ResetPosition], int]
"""The wanted offset of one partition, which may be outside of its log."""


def earliest(_: TopicPartition, position: ResetPosition) -> int:
    """To the first record."""
    return position.start


def latest(_: TopicPartition, position: ResetPosition) -> int:
    """To the end."""
    return position.end


def shifted(by: int) -> Target:
    """Forward or back from the committed offset; from the first record where nothing is committed."""
    return lambda _, position: by + (position.start if position.committed is None else position.committed)


def fixed(offset: int) -> Target:
    """To the same offset in each partition."""
    return lambda _, __: offset


def at_time(found: Mapping[TopicPartition, int]) -> Target:
    """To the offsets that ListOffsets has found for a time; to the end where no record is that late."""
    return lambda place, position: position.end if found[place] == NO_RECORD else found[place]


def exact(offsets: Mapping[TopicPartition, int]) -> Target:
    """To an offset of its own in each partition."""
    return lambda place, _: offsets[place]


def plan_reset(positions: Mapping[TopicPartition, ResetPosition], target: Target) -> list[OffsetMove]:
    """The change of each partition, sorted."""
    return [
        OffsetMove(place, position.committed, min(max(target(place, position), position.start), position.end))
        for place, position in sorted(positions.items())
    ]
