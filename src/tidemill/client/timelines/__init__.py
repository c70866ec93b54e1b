"""The timeline client: schedule messages for later, and lease them when they are due."""

from tidemill.client.timelines.aio import AsyncTimeline, Bar, Latency, Stored, TimelineDescription
from tidemill.client.timelines.clock_state import ClockState
from tidemill.client.timelines.lease import AsyncLease, Lease
from tidemill.client.timelines.message import Due, Message, RecurrenceRule, ScheduledId
from tidemill.client.timelines.sync import Timeline
from tidemill.client.timelines.worker import TimelineLoad
from tidemill.client.timelines.worker_handle import AsyncWorkerHandle, WorkerHandle

__all__ = [
    "AsyncLease",
    "AsyncTimeline",
    "AsyncWorkerHandle",
    "Bar",
    "ClockState",
    "Due",
    "Latency",
    "Lease",
    "Message",
    "RecurrenceRule",
    "ScheduledId",
    "Stored",
    "Timeline",
    "TimelineDescription",
    "TimelineLoad",
    "WorkerHandle",
]
