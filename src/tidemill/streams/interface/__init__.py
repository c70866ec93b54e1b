"""What a partition needs from storage: a log, a store of logs, and the disk below segment files."""

from tidemill.streams.interface.disk import Disk, DiskDirectories, DiskReader, DiskWriter
from tidemill.streams.interface.errors import FULL, FlushFailed, StoreAway, lacks_room
from tidemill.streams.interface.log import (
    INLINE_BYTES_MAX,
    AppendLog,
    MaintainedLog,
    RewritableLog,
    Rewritten,
    Saved,
    StoredBatch,
    StreamLog,
)
from tidemill.streams.interface.store import LogStore

__all__ = [
    "FULL",
    "INLINE_BYTES_MAX",
    "AppendLog",
    "Disk",
    "DiskDirectories",
    "DiskReader",
    "DiskWriter",
    "FlushFailed",
    "LogStore",
    "MaintainedLog",
    "RewritableLog",
    "Rewritten",
    "Saved",
    "StoreAway",
    "StoredBatch",
    "StreamLog",
    "lacks_room",
]
