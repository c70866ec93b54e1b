"""Builds parts of SQL statements: literals, and conditions for the rows of a partition."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


def text(value: str) -> str:
    """Return a string as a SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class PartitionRef(NamedTuple):
    """Identifies a partition in the tables.

    On shared servers, `topic_id` distinguishes a topic from a deleted topic of the same name. Statements that change
    rows must name it, because a change may be late. Readers need not, because deleted rows do not exist.
    """

    topic: str
    partition: int
    topic_id: str = ""

    @property
    def rows(self) -> str:
        """The condition for reading its rows, by the first columns of the tables' order."""
        return f"topic = {text(self.topic)} AND partition = {self.partition}"

    @property
    def own_rows(self) -> str:
        """The condition for changing its rows."""
        return f"{self.rows}{of_topic(self.topic_id)}"


def of_topic(topic_id: str) -> str:
    """Return a condition for rows of this topic id. Rows from before ids were stored have none."""
    return f" AND topic_id IN ('', {text(topic_id)})" if topic_id else ""


def listed(places: Iterable[PartitionRef]) -> str:
    """Return partitions as a SQL list, to compare with (topic, partition)."""
    return ", ".join(f"({text(each.topic)}, {each.partition})" for each in places)


def bits(first: int, end: int, chosen: npt.NDArray[np.int64]) -> str:
    """Return a condition for chosen offsets between `first` and `end`, as a bitmap with one bit per offset."""
    marks = np.zeros(end - first, np.uint8)
    marks[chosen[(chosen >= first) & (chosen < end)] - first] = 1
    packed = np.packbits(marks, bitorder="little").tobytes().hex()
    place = f"offset - {first}"
    byte = f"reinterpretAsUInt8(substring(unhex('{packed}'), intDiv({place}, 8) + 1, 1))"
    return f"bitTest({byte}, toUInt8(({place}) % 8)) = 1"
