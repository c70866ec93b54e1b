"""Where the broker of a test stores its streams."""

from typing import NamedTuple


class Storage(NamedTuple):
    """Flags of the broker, and how often it is killed at most. A broker that loads tables restarts more slowly."""

    flags: dict[str, str]
    kills_max: int


FILES = Storage({"streams": "segments:"}, 3)
# No fsync: killing the process loses nothing that the kernel has.
TABLES = Storage({"streams": "chdb:?fsync=false"}, 1)
