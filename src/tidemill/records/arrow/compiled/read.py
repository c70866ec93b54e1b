"""Converts records to columns, compiled: memory in, Arrow buffers out.

Compiled code checks no index, so every read here must be proven safe first. A record's length must be within its batch.
After that, every part of the record is read only below the record's end. A size is compared with the remaining bytes,
and never added first, because the sum could overflow. The output needs no check of its own. Each copied byte comes from
its own place in the input, so the input's size is enough. The number of records is bounded by the bytes they need.

One pass fills all columns except the headers. It checks the headers' bounds and records their positions. A second pass
fills them. All input is read-only, so that each function has one compiled form. Functions that are called for every
record are inlined, as in `write`.
"""

from typing import Any

import numpy as np
from numba import njit

from tidemill.records.arrow.compiled.memory import BAD, copy, varint
from tidemill.records.arrow.schema import MICROSECONDS, TIMESTAMP_MS_MAX
from tidemill.records.arrow.table import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIME,
    END,
    LAST_DELTA,
    MAX_TIME,
    RECORDS,
    START,
)
from tidemill.records.header import LOG_APPEND_TIME_BIT

OK, CUT, LENGTH, PARTS, DELTA, TIMESTAMP, HEADERS, TRAILING = range(8)
REASONS = {
    CUT: "a record extends beyond its batch",
    LENGTH: "a key or value has an impossible length",
    PARTS: "a record is longer than its parts",
    DELTA: "the offset deltas of a batch do not increase",
    TIMESTAMP: "a record has an impossible timestamp",
    HEADERS: "the headers of a record have an impossible length",
    TRAILING: "bytes follow the last record of a batch",
}
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
# The columns of the totals.
TOTALS = ROWS, KEY_BYTES, VALUE_BYTES, KEY_NULLS, VALUE_NULLS, ENTRIES, NAME_BYTES, CONTENT_BYTES = tuple(range(8))


@njit(inline="always")
def _skip_headers(data: Any, at: Any, end: Any) -> Any:
    """Return the position after the headers (or BAD), their count, and the bytes of their keys and values."""
    bad = (np.int64(BAD), np.int64(0), np.int64(0), np.int64(0))
    count, at = varint(data, at, end)
    if at == BAD or count < 0 or count > end - at:
        return bad
    name_bytes = np.int64(0)
    content_bytes = np.int64(0)
    for _ in range(count):
        size, at = varint(data, at, end)
        if at == BAD or size < 0 or size > end - at:
            return bad
        name_bytes += size
        at += size
        size, at = varint(data, at, end)
        if at == BAD or size < -1 or size > end - at:
            return bad
        if size > 0:
            content_bytes += size
            at += size
    return at, count, name_bytes, content_bytes


@njit(inline="always")
def _item(data: Any, at: Any, end: Any) -> Any:
    """Return the start of a key or value, its size (-1: null), and the position after it (or BAD)."""
    size, start = varint(data, at, end)
    if start == BAD or size < -1 or size > end - start:
        return np.int64(0), np.int64(0), np.int64(BAD)
    return start, size, start + max(size, 0)


@njit(inline="always")
def _keep(data: Any, start: Any, size: Any, row: Any, ends: Any, out: Any, bits: Any, total: Any) -> Any:
    """Append a key or value to its column. Return the new size of the column in bytes."""
    if size >= 0:
        copy(out, total, data, start, size)
        total += size
        bits[row >> 3] |= np.uint8(1 << (row & 7))
    ends[row + 1] = total
    return total


@njit(inline="always")
def _overflows(base: Any, delta: Any) -> Any:
    return (delta > 0 and base > INT64_MAX - delta) or (delta < 0 and base < INT64_MIN - delta)


@njit(inline="always")
def _refused(status: Any) -> Any:
    zero = np.int64(0)
    return status, zero, zero, zero, (zero, zero), (zero, zero), (zero, zero, zero, zero)


@njit(inline="always")
def _record(data: Any, at: Any, limit: Any) -> Any:
    """Return the parts of the record at `at`, which must end before `limit`.

    They are: status, position after it, time delta, offset delta, (start, size) of key and of value, and of the
    headers: start, count, bytes of keys, bytes of values.
    """
    size, at = varint(data, at, limit)
    if at == BAD or size < 1 or size > limit - at:
        return _refused(CUT)
    end = at + size
    time, at = varint(data, at + 1, end)
    if at == BAD:
        return _refused(CUT)
    delta, at = varint(data, at, end)
    if at == BAD:
        return _refused(CUT)
    key_at, key_size, at = _item(data, at, end)
    if at == BAD:
        return _refused(LENGTH)
    value_at, value_size, at = _item(data, at, end)
    if at == BAD:
        return _refused(LENGTH)
    headers_at = at
    entries = name_bytes = content_bytes = np.int64(0)
    if at < end and data[at] == 0:
        at += 1
    else:
        at, entries, name_bytes, content_bytes = _skip_headers(data, at, end)
        if at == BAD:
            return _refused(HEADERS)
    if at != end:
        return _refused(PARTS)
    headers = (headers_at, entries, name_bytes, content_bytes)
    return OK, end, time, delta, (key_at, key_size), (value_at, value_size), headers


@njit(cache=True, nogil=True)
def read(
    data: Any, table: Any, low: Any, high: Any, wanted: Any, keys: Any, values: Any, fixed: Any, totals: Any
) -> Any:
    """Fill the columns from the records of `table`. Return OK, or the reason why that is impossible.

    `keys` and `values` are (ends, data, validity bits). `fixed` is (offsets, times, kinds, positions of the headers).
    """
    row = np.int64(0)
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    for line in range(table.shape[0]):
        at = table[line, START]
        kind = np.int32(table[line, ATTRIBUTES] & LOG_APPEND_TIME_BIT != 0)
        previous = np.int64(-1)
        for _ in range(table[line, RECORDS]):
            status, at, time, delta, key, value, headers = _record(data, at, table[line, END])
            if status != OK:
                return status
            if delta <= previous or delta > table[line, LAST_DELTA]:
                return DELTA
            previous = delta
            if kind:
                time = table[line, MAX_TIME]
            elif _overflows(table[line, BASE_TIME], time):
                return TIMESTAMP
            else:
                time += table[line, BASE_TIME]
            offset = table[line, BASE_OFFSET] + delta
            if offset < low or offset >= high:
                continue
            if wanted[0]:
                key_bytes = _keep(data, key[0], key[1], row, keys[0], keys[1], keys[2], key_bytes)
                totals[KEY_NULLS] += key[1] < 0
            if wanted[1]:
                value_bytes = _keep(data, value[0], value[1], row, values[0], values[1], values[2], value_bytes)
                totals[VALUE_NULLS] += value[1] < 0
            fixed[0][row] = offset
            fixed[1][row] = min(max(time, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * MICROSECONDS
            fixed[2][row] = kind
            fixed[3][row] = headers[0]
            totals[ENTRIES] += headers[1]
            totals[NAME_BYTES] += headers[2]
            totals[CONTENT_BYTES] += headers[3]
            row += 1
        if at != table[line, END]:
            return TRAILING
    totals[ROWS] = row
    totals[KEY_BYTES] = key_bytes
    totals[VALUE_BYTES] = value_bytes
    return OK


@njit(cache=True, nogil=True)
def read_headers(data: Any, headers_at: Any, ends: Any, bits: Any, names: Any, contents: Any) -> Any:
    """Fill the headers of rows whose bounds `read` has checked. Return the number of rows without headers.

    `names` and `contents` are (ends, data, validity bits) of all headers, concatenated.
    """
    entry = np.int64(0)
    name_bytes = np.int64(0)
    content_bytes = np.int64(0)
    without = np.int64(0)
    limit = np.int64(data.shape[0])
    for row in range(headers_at.shape[0]):
        count, at = varint(data, headers_at[row], limit)
        if count:
            bits[row >> 3] |= np.uint8(1 << (row & 7))
        else:
            without += 1
        for _ in range(count):
            start, size, at = _item(data, at, limit)
            name_bytes = _keep(data, start, size, entry, names[0], names[1], names[2], name_bytes)
            start, size, at = _item(data, at, limit)
            content_bytes = _keep(data, start, size, entry, contents[0], contents[1], contents[2], content_bytes)
            entry += 1
        ends[row + 1] = entry
    return without
