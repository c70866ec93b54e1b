"""Pieces of SQL: literals, and the place of a partition in the tables."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


def text(value: str) -> str:
    """A string as it stands in a statement."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class PartitionRef(NamedTuple):
    """A partition in the tables.

    Where several brokers write, `topic_id` tells its topic from one of the same name that was deleted before: whoever
    changes rows names it, since a change may be late. Readers need not, for what was deleted is not there.
    """

    topic: str
    partition: int
    topic_id: str = ""

    @property
    def rows(self) -> str:
        """Its rows, for who reads them: the first columns of the tables' order."""
        return f"topic = {text(self.topic)} AND partition = {self.partition}"

    @property
    def own_rows(self) -> str:
        """Its rows, for who changes them."""
        return f"{self.rows}{of_topic(self.topic_id)}"


def of_topic(topic_id: str) -> str:
    """One more condition: only rows of this topic; those from before ids were kept have none."""
    return f" AND topic_id IN ('', {text(topic_id)})" if topic_id else ""


def listed(places: Iterable[PartitionRef]) -> str:
    """Partitions as a list in a statement, to compare (topic, partition) with."""
    return ", ".join(f"({text(each.topic)}, {each.partition})" for each in places)


def bits(first: int, end: int, chosen: npt.NDArray[np.int64]) -> str:
    """Whether a row's offset, from `first` to before `end`, is one of the chosen: a bit for each offset."""
    marks = np.zeros(end - first, np.uint8)
    marks[chosen[(chosen >= first) & (chosen < end)] - first] = 1
    packed = np.packbits(marks, bitorder="little").tobytes().hex()
    place = f"offset - {first}"
    byte = f"reinterpretAsUInt8(substring(unhex('{packed}'), intDiv({place}, 8) + 1, 1))"
    return f"bitTest({byte}, toUInt8(({place}) % 8)) = 1"
