"""One partition: `Partition` opens and closes it, its leader, follower and reader sides serve it."""

from tidemill.streams.partition.leader import Appended
from tidemill.streams.partition.partition import Partition
from tidemill.streams.partition.reader import ReadResult
from tidemill.streams.search import NOT_FOUND, FoundOffset

__all__ = ["NOT_FOUND", "Appended", "FoundOffset", "Partition", "ReadResult"]
