"""Positions in a topic: an offset in each partition. A forward reader continues at it, a backward reader before it."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

MERGED_PARTITIONS_MAX = 500
"""The most partitions that one request merges."""
_POSITION = re.compile(r"\d{1,5}:\d{1,19}(?:,\d{1,5}:\d{1,19}){0,499}")
_MILLISECONDS = re.compile(r"-?\d{1,18}")


class InvalidPosition(ValueError):
    """A position or a time cannot be read."""


def encode_positions(offsets: Mapping[int, int]) -> str:
    """The offsets as text, such as `0:12,1:7`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def decode_positions(text: str, partitions: Collection[int]) -> dict[int, int]:
    """The offsets of the partitions in the text; of partitions that were added later there is none."""
    if not _POSITION.fullmatch(text):
        raise InvalidPosition("the position is not valid; use one of an earlier page")
    offsets = {}
    for each in text.split(","):
        partition, _, offset = each.partition(":")
        offsets[int(partition)] = int(offset)
    if not offsets.keys() <= set(partitions):
        raise InvalidPosition("the position is of other partitions; start again without it")
    return offsets


def decode_time(text: str) -> int:
    """A time in milliseconds, from a number or an ISO time; without a zone it is UTC."""
    text = text.strip()
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidPosition(f"{text[:40]!r} is not a time; write 2026-11-16T10:00, or milliseconds") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)
