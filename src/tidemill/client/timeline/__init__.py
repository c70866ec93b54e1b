"""The timeline client: schedule messages for later, and lease them when they are due."""

from tidemill.client.timeline.aio import AsyncTimeline, Bar, Latency, Stored, TimelineDescription
from tidemill.client.timeline.lease import AsyncLease, Lease
from tidemill.client.timeline.message import Due, Message, ScheduledId
from tidemill.client.timeline.sync import Timeline
from tidemill.client.timeline.worker import ClockState

__all__ = [
    "AsyncLease",
    "AsyncTimeline",
    "Bar",
    "ClockState",
    "Due",
    "Latency",
    "Lease",
    "Message",
    "ScheduledId",
    "Stored",
    "Timeline",
    "TimelineDescription",
]
