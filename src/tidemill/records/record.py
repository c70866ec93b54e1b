"""One decoded record.

Records exist only where a batch is decoded: in compaction, in searches by time and in the broker's own journals. They
are NamedTuples because they are created in large numbers.
"""

from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record at its position in a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
