"""The log of a partition in segment files."""

from tidemill.streams.segments.disk import RealDisk
from tidemill.streams.segments.log import SegmentLog
from tidemill.streams.segments.store import SegmentStore

__all__ = ["RealDisk", "SegmentLog", "SegmentStore"]
