"""Errors of storage, and how a full disk is recognised."""

import errno

from tidemill.model.errors import KafkaStorageError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How the system reports that a disk or a quota is full."""


class FlushFailed(OSError):
    """The disk could not flush bytes or names: its content is unknown, and a second flush may report false success."""


class StoreAway(KafkaStorageError):
    """The storage of the partition cannot be reached at the moment."""


def lacks_room(error: BaseException) -> bool:
    """Whether the disk is full, and nothing worse."""
    return isinstance(error, OSError) and error.errno in FULL and not isinstance(error, FlushFailed)
