"""The position of a replay, as metadata that it commits with its records.

A replay writes in transactions. Each transaction commits the next offset of each partition of the lake, as metadata of
offsets of the replay's group. So records and position become visible together. A topic may have fewer partitions than
the lake, and a group stores offsets only for partitions that exist. So the position of partition p of the lake is
stored under partition p mod count of the topic.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tidemill.pipelines.errors import PipelineError

METADATA_CHARS_MAX = 4096
"""The brokers' default limit for the metadata of an offset."""


def positions_to_texts(positions: Mapping[int, int], count: int) -> dict[int, str]:
    """The metadata to commit, by partition of the topic."""
    parts: dict[int, list[str]] = defaultdict(list)
    for partition, offset in sorted(positions.items()):
        parts[partition % count].append(f"{partition}={offset}")
    texts = {index: " ".join(part) for index, part in parts.items()}
    if any(len(text) > METADATA_CHARS_MAX for text in texts.values()):
        raise PipelineError(f"the topic has too few partitions to store {len(positions)} positions; add partitions")
    return texts


def positions_from_texts(texts: Iterable[str]) -> dict[int, int]:
    """The committed positions. Metadata of other programs is ignored."""
    found: dict[int, int] = {}
    for text in texts:
        for part in text.split():
            partition, equals, offset = part.partition("=")
            if equals and partition.isdecimal() and offset.isdecimal():
                found[int(partition)] = max(int(offset), found.get(int(partition), 0))
    return found
