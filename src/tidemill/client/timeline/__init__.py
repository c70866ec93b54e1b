"""The timeline client: schedule messages for later, and lease them when they are due."""

import os

# gRPC's handlers around fork() can abort the child of a process that only wants to start another program. They are
# of use to those who go on using gRPC in a forked child, which an event loop cannot. Read when gRPC is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

from tidemill.client.timeline.aio import AsyncTimeline, Bar, Latency, Stored, TimelineDescription
from tidemill.client.timeline.lease import AsyncLease, Lease
from tidemill.client.timeline.message import Due, Message, ScheduledId
from tidemill.client.timeline.sync import Timeline

__all__ = [
    "AsyncLease",
    "AsyncTimeline",
    "Bar",
    "Due",
    "Latency",
    "Lease",
    "Message",
    "ScheduledId",
    "Stored",
    "Timeline",
    "TimelineDescription",
]
