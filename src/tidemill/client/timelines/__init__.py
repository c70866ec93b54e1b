"""The timeline client: schedule messages for later, and lease them when they are due."""

from tidemill.client.timelines.aio import AsyncTimeline, Bar, Latency, Stored, TimelineDescription
from tidemill.client.timelines.lease import AsyncLease, Lease
from tidemill.client.timelines.message import Due, Message, ScheduledId
from tidemill.client.timelines.sync import Timeline
from tidemill.client.timelines.worker import ClockState

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
