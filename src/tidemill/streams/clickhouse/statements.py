"""Pieces of SQL: literals, and the place of a partition in the tables."""

import numpy as np
import numpy.typing as npt


def text(value: str) -> str:
    """A string as it stands in a statement."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def place_of(topic: str, partition: int) -> str:
    """The rows of one partition: the first columns of the tables' order."""
    return f"topic = {text(topic)} AND partition = {partition}"


def bits(first: int, end: int, chosen: npt.NDArray[np.int64]) -> str:
    """Whether a row's offset, from `first` to before `end`, is one of the chosen: a bit for each offset."""
    marks = np.zeros(end - first, np.uint8)
    marks[chosen[(chosen >= first) & (chosen < end)] - first] = 1
    packed = np.packbits(marks, bitorder="little").tobytes().hex()
    place = f"offset - {first}"
    byte = f"reinterpretAsUInt8(substring(unhex('{packed}'), intDiv({place}, 8) + 1, 1))"
    return f"bitTest({byte}, toUInt8(({place}) % 8)) = 1"
