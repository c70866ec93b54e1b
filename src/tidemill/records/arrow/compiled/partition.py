"""Assigns rows to partitions, compiled: by two hashes of the key, then grouped by partition.

A binary column is passed as (data, offsets, which items are not null).
"""

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def by_murmur2(data: Any, offsets: Any, valid: Any, count: Any, unkeyed: Any, out: Any) -> None:
    """Write the positive part of Kafka's murmur2 of each key, modulo `count`. A null key gets `unkeyed`."""
    multiplier = np.uint32(0x5BD1E995)
    for item in range(out.shape[0]):
        start = offsets[item]
        size = offsets[item + 1] - start
        mixed = np.uint32(0x9747B28C) ^ np.uint32(size)
        whole = size - size % 4
        for at in range(start, start + whole, 4):
            word = np.uint32(data[at]) | (np.uint32(data[at + 1]) << np.uint32(8))
            word |= (np.uint32(data[at + 2]) << np.uint32(16)) | (np.uint32(data[at + 3]) << np.uint32(24))
            word = np.uint32(word * multiplier)
            word = np.uint32((word ^ (word >> np.uint32(24))) * multiplier)
            mixed = np.uint32(np.uint32(mixed * multiplier) ^ word)
        if size > whole:
            tail = np.uint32(0)
            for at in range(size - whole):
                tail |= np.uint32(data[start + whole + at]) << np.uint32(8 * at)
            mixed = np.uint32((mixed ^ tail) * multiplier)
        mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * multiplier)
        hashed = np.int64((mixed ^ (mixed >> np.uint32(15))) & np.uint32(0x7FFFFFFF))
        out[item] = hashed % count if valid[item] else unkeyed


@njit(cache=True, nogil=True)
def by_crc32(data: Any, offsets: Any, valid: Any, table: Any, count: Any, unkeyed: Any, out: Any) -> None:
    """Write the CRC-32 of each key, modulo `count`. A null or empty key gets `unkeyed`. `table` has all bytes' CRCs."""
    for item in range(out.shape[0]):
        crc = np.uint32(0xFFFFFFFF)
        for at in range(offsets[item], offsets[item + 1]):
            crc = table[(crc ^ np.uint32(data[at])) & np.uint32(255)] ^ (crc >> np.uint32(8))
        keyed = valid[item] and offsets[item + 1] > offsets[item]
        out[item] = np.int64(crc ^ np.uint32(0xFFFFFFFF)) % count if keyed else unkeyed


@njit(cache=True, nogil=True)
def deal(partitions: Any, ends: Any, rows: Any) -> None:
    """Group the rows by partition, in their order. `ends` is zero before, and has the end of each partition after."""
    for row in range(partitions.shape[0]):
        ends[partitions[row]] += 1
    total = np.int64(0)
    for partition in range(ends.shape[0]):
        total += ends[partition]
        ends[partition] = total - ends[partition]
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        rows[ends[partition]] = row
        ends[partition] += 1
