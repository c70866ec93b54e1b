"""How far a replay is, as the texts that it commits with its records.

A replay writes in transactions. Each commits, as metadata of offsets of the replay's group, from which offset of each
partition of the lake it goes on: records and position become visible together. A topic may have fewer partitions than
the lake, and a group keeps offsets only for partitions that exist, so partition p of the lake is told at partition
p mod count of the topic.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tidemill.pipelines.core.errors import PipelineError

METADATA_CHARS_MAX = 4096
"""What brokers take as the metadata of an offset unless told otherwise."""


def positions_to_texts(positions: Mapping[int, int], count: int) -> dict[int, str]:
    """By partition of the topic, the text to commit there."""
    parts: dict[int, list[str]] = defaultdict(list)
    for partition, offset in sorted(positions.items()):
        parts[partition % count].append(f"{partition}={offset}")
    texts = {index: " ".join(part) for index, part in parts.items()}
    if any(len(text) > METADATA_CHARS_MAX for text in texts.values()):
        raise PipelineError(f"the topic has too few partitions to keep the progress of {len(positions)}; give it more")
    return texts


def positions_from_texts(texts: Iterable[str]) -> dict[int, int]:
    """What was committed, put together; texts of others are left out."""
    found: dict[int, int] = {}
    for text in texts:
        for part in text.split():
            partition, equals, offset = part.partition("=")
            if equals and partition.isdecimal() and offset.isdecimal():
                found[int(partition)] = max(int(offset), found.get(int(partition), 0))
    return found
