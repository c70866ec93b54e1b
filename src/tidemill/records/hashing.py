"""The two hashes with which Kafka's clients assign keys to partitions.

*consistent_random* is CRC-32, the default of librdkafka and of clients built on it. *murmur2_random* is the default of
Java's clients. All clients with the same hash choose the same partition. Records without a key go to any partition.
"""

from collections.abc import Callable, Mapping
from zlib import crc32

CONSISTENT_RANDOM = "consistent_random"
MURMUR2_RANDOM = "murmur2_random"
_POSITIVE = 0x7FFFFFFF
_UINT32 = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """Return Kafka's murmur2 hash of a key, unsigned."""
    size = len(key)
    mixed = _SEED ^ size
    whole = size - size % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _UINT32
        word = (word ^ word >> 24) * _MULTIPLIER & _UINT32
        mixed = mixed * _MULTIPLIER & _UINT32 ^ word
    if size > whole:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _UINT32
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _UINT32
    return mixed ^ mixed >> 15


PARTITIONERS: Mapping[str, Callable[[bytes], int]] = {
    CONSISTENT_RANDOM: crc32,
    MURMUR2_RANDOM: lambda key: murmur2(key) & _POSITIVE,
}
