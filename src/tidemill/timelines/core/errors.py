"""The errors of timelines. They are defined in the model, because the client raises the same ones.

`PartitionMoved` is an error between brokers, which repeat the call.
"""

from tidemill.model.timeline_errors import (
    BadDueTime,
    BadLease,
    BadMessageId,
    BadRecurrence,
    BadSetting,
    BadTimelineName,
    BatchTooLarge,
    BodyTooLarge,
    LeaseIsLive,
    NotOwner,
    StaleLease,
    StoreCorrupt,
    StoreTooNew,
    StoreUnavailable,
    TimelineDeleting,
    TimelineError,
    TimelineExists,
    TimelineNotReady,
    UnknownMessage,
    UnknownTimeline,
)

__all__ = [
    "BadDueTime",
    "BadLease",
    "BadMessageId",
    "BadRecurrence",
    "BadSetting",
    "BadTimelineName",
    "BatchTooLarge",
    "BodyTooLarge",
    "LeaseIsLive",
    "NotOwner",
    "PartitionMoved",
    "StaleLease",
    "StoreCorrupt",
    "StoreTooNew",
    "StoreUnavailable",
    "TimelineDeleting",
    "TimelineError",
    "TimelineExists",
    "TimelineNotReady",
    "UnknownMessage",
    "UnknownTimeline",
]


class PartitionMoved(StoreUnavailable):
    """The called broker does not lead the partition, or is not ready to. Nothing was done: ask again."""
