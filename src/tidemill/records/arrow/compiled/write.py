"""Converts columns to records, compiled.

The output of `write_runs` is as large as `Columns.sizes`, which is never less than what is written. A binary column is
passed as (data, offsets, which items are not null).

Functions that are called for every record are inlined. At a real call numba counts references to arrays, which takes
longer than everything else.
"""

from typing import Any

import numpy as np
from numba import njit

from tidemill.records.arrow.compiled.memory import copy, put, width


@njit(inline="always")
def _put_item(out: Any, at: Any, data: Any, offsets: Any, valid: Any, item: Any) -> Any:
    if not valid[item]:
        return put(out, at, np.int64(-1))
    size = offsets[item + 1] - offsets[item]
    at = put(out, at, size)
    copy(out, at, data, offsets[item], size)
    return at + size


@njit(inline="always")
def _item_bytes(offsets: Any, valid: Any, item: Any) -> Any:
    if not valid[item]:
        return np.int64(1)
    size = offsets[item + 1] - offsets[item]
    return width(size) + size


@njit(inline="always")
def _record_bytes(
    row: Any, time: Any, delta: Any, keys: Any, values: Any, first: Any, names: Any, contents: Any
) -> Any:
    size = 1 + width(time) + width(delta) + width(first[row + 1] - first[row])
    size += _item_bytes(keys[1], keys[2], row) + _item_bytes(values[1], values[2], row)
    for entry in range(first[row], first[row + 1]):
        size += _item_bytes(names[1], names[2], entry) + _item_bytes(contents[1], contents[2], entry)
    return size


@njit(inline="always")
def _put_record(
    out: Any,
    at: Any,
    size: Any,
    row: Any,
    time: Any,
    delta: Any,
    keys: Any,
    values: Any,
    first: Any,
    names: Any,
    contents: Any,
) -> Any:
    at = put(out, at, size)
    out[at] = 0
    at = put(out, at + 1, time)
    at = put(out, at, delta)
    at = _put_item(out, at, keys[0], keys[1], keys[2], row)
    at = _put_item(out, at, values[0], values[1], values[2], row)
    at = put(out, at, first[row + 1] - first[row])
    for entry in range(first[row], first[row + 1]):
        at = _put_item(out, at, names[0], names[1], names[2], entry)
        at = _put_item(out, at, contents[0], contents[1], contents[2], entry)
    return at


@njit(cache=True, nogil=True)
def write(
    out: Any,
    at: Any,
    stop: Any,
    count: Any,
    base_time: Any,
    latest: Any,
    rows: Any,
    times: Any,
    keys: Any,
    values: Any,
    first: Any,
    names: Any,
    contents: Any,
) -> Any:
    """Write the records of these rows in order, after `count` others that end at `at`, as many as fit before `stop`.

    Return how many were written, where they end, and the latest timestamp of all. `first` is where the headers of each
    row start in `names` and `contents`.
    """
    for index in range(rows.shape[0]):
        row = rows[index]
        time = times[row] - base_time
        delta = np.int64(count + index)
        size = _record_bytes(row, time, delta, keys, values, first, names, contents)
        if at + width(size) + size > stop:
            return np.int64(index), np.int64(at), np.int64(latest)
        at = _put_record(out, at, size, row, time, delta, keys, values, first, names, contents)
        latest = max(latest, times[row])
    return np.int64(rows.shape[0]), np.int64(at), np.int64(latest)


@njit(cache=True, nogil=True)
def write_runs(
    out: Any,
    ends: Any,
    base_times: Any,
    deltas: Any,
    out_ends: Any,
    times: Any,
    keys: Any,
    values: Any,
    first: Any,
    names: Any,
    contents: Any,
) -> Any:
    """Write the records of runs of rows, one batch after the other. `out_ends` gets the end of each."""
    at = np.int64(0)
    row = np.int64(0)
    for run in range(ends.shape[0]):
        while row < ends[run]:
            time = times[row] - base_times[run]
            size = _record_bytes(row, time, deltas[row], keys, values, first, names, contents)
            at = _put_record(out, at, size, row, time, deltas[row], keys, values, first, names, contents)
            row += 1
        out_ends[run] = at
    return at
