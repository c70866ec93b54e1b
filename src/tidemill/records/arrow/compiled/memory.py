"""Helpers of the compiled functions: copying, and varints.

numba stores its cache next to the sources. It recompiles a function when its own file changes, but not when a function
that it calls changes. So delete the cache (`__pycache__/*.nb*`) after a change of this file.
"""

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

BAD = -1
"""The position after a number that cannot be read."""


@intrinsic
def copy(_typing: Any, to: Any, _to_at: Any, source: Any, _source_at: Any, _size: Any) -> Any:
    """memcpy: several times as fast as a loop for values of 100 bytes and more."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = context.make_array(signature.args[0])(context, builder, arguments[0])
        origin = context.make_array(signature.args[2])(context, builder, arguments[2])
        target_at = builder.gep(target.data, [arguments[1]])
        origin_at = builder.gep(origin.data, [arguments[3]])
        cgutils.raw_memcpy(builder, target_at, origin_at, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(to, types.int64, source, types.int64, types.int64), generate


@njit(cache=True)
def varint(data: Any, at: Any, end: Any) -> Any:
    """Return a number and the position after it, which is BAD when it does not end before `end` or exceeds 64 bits."""
    if at >= end:
        return np.int64(0), np.int64(BAD)
    byte = data[at]
    if byte < 128:
        return np.int64(byte >> 1) ^ -np.int64(byte & 1), at + 1
    raw = np.uint64(byte & 127)
    shift = np.uint64(7)
    at += 1
    while True:
        if at >= end:
            return np.int64(0), np.int64(BAD)
        byte = data[at]
        at += 1
        if shift == np.uint64(63) and byte > 1:
            return np.int64(0), np.int64(BAD)
        raw |= np.uint64(byte & 127) << shift
        if byte < 128:
            break
        shift += np.uint64(7)
    return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), at


@njit(inline="always")
def put(out: Any, at: Any, number: Any) -> Any:
    """Write a number. Return the position after it."""
    raw = np.uint64((number << np.int64(1)) ^ (number >> np.int64(63)))
    while raw >= np.uint64(128):
        out[at] = np.uint8((raw & np.uint64(127)) | np.uint64(128))
        at += 1
        raw >>= np.uint64(7)
    out[at] = np.uint8(raw)
    return at + 1


@njit(inline="always")
def width(number: Any) -> Any:
    """Return how many bytes `put` writes."""
    raw = np.uint64((number << np.int64(1)) ^ (number >> np.int64(63)))
    size = np.int64(1)
    while raw >= np.uint64(128):
        raw >>= np.uint64(7)
        size += 1
    return size
