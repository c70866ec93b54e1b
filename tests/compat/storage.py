"""Where the broker of a test keeps its streams."""

from typing import NamedTuple


class Storage(NamedTuple):
    """Flags of the broker, and how often it is killed at most: one that loads tables takes longer to come back."""

    flags: dict[str, str]
    kills_max: int


FILES = Storage({"streams": "segments:"}, 3)
# Without waiting for the disk: a kill of the process loses nothing that the system has.
TABLES = Storage({"streams": "chdb:?fsync=false"}, 1)
