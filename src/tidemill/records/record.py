"""One record, as a reader sees it.

Records exist only where a batch is opened: in compaction, in searches by time and in the broker's own journals. They
are NamedTuples because they are made by the hundred thousand.
"""

from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record at its place in a log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
