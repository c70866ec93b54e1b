"""Finds the batches that a reader may see, compiled. The rules are those of `selection`."""

from typing import Any

import numpy as np
from numba import njit

from tidemill.records.arrow.selection import OFFSET_MAX
from tidemill.records.arrow.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIME,
    CRC,
    END,
    LAST_DELTA,
    MAX_TIME,
    POSITION,
    RECORDS,
    SIZE,
    START,
)
from tidemill.records.header import CONTROL_BIT, HEADER_SIZE, LENGTH_END, LENGTH_MIN, MAGIC, TRANSACTIONAL_BIT

BAD_HEADER = -1
BAD_OFFSET = -2


@njit(cache=True)
def _number(data: Any, at: Any, size: Any) -> Any:
    """Return the signed big-endian number of this size."""
    raw = np.int64(np.int8(data[at]))
    for index in range(1, size):
        raw = (raw << np.int64(8)) | np.int64(data[at + index])
    return raw


@njit(cache=True)
def _is_aborted(producer_id: Any, control: Any, last: Any, producers: Any, firsts: Any, opened: Any) -> Any:
    """Whether a transactional batch is aborted. `opened` is 0 for future, 1 for open, 2 for ended transactions."""
    found = False
    for index in range(producers.shape[0]):
        if opened[index] == 0 and firsts[index] <= last:
            opened[index] = 1
        if opened[index] == 1 and producers[index] == producer_id:
            if control:
                opened[index] = 2
            else:
                found = True
    return found


@njit(cache=True, nogil=True)
def scan(data: Any, start: Any, end: Any, producers: Any, firsts: Any, opened: Any, table: Any) -> Any:
    """Fill the table. Return the number of its lines, or what is wrong with a header."""
    lines = np.int64(0)
    at = np.int64(0)
    left = np.int64(data.shape[0])
    while left >= HEADER_SIZE:
        length = _number(data, at + 8, 4)
        last_delta = _number(data, at + 23, 4)
        records = _number(data, at + 57, 4)
        if data[at + 16] != MAGIC or length < LENGTH_MIN or last_delta < 0 or records < 0:
            return np.int64(BAD_HEADER)
        size = length + LENGTH_END
        if size > left:
            break
        base = _number(data, at, 8)
        if base < 0 or base > OFFSET_MAX - last_delta:
            return np.int64(BAD_OFFSET)
        if base >= end:
            break
        attributes = _number(data, at + 21, 2)
        control = attributes & CONTROL_BIT != 0
        hidden = control or base + last_delta < start or records == 0
        if attributes & TRANSACTIONAL_BIT:
            producer_id = _number(data, at + 43, 8)
            if _is_aborted(producer_id, control, base + last_delta, producers, firsts, opened):
                hidden = True
        if not hidden:
            table[lines, POSITION] = at
            table[lines, SIZE] = size
            table[lines, CRC] = _number(data, at + 17, 4) & 0xFFFFFFFF
            table[lines, ATTRIBUTES] = attributes
            table[lines, BASE_OFFSET] = base
            table[lines, LAST_DELTA] = last_delta
            table[lines, BASE_TIME] = _number(data, at + 27, 8)
            table[lines, MAX_TIME] = _number(data, at + 35, 8)
            table[lines, RECORDS] = records
            table[lines, START] = at + HEADER_SIZE
            table[lines, END] = at + size
            lines += 1
        at += size
        left -= size
    return lines
