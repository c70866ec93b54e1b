"""Scheduled records: any Kafka producer can send them to a topic with `tidemill.schedule.enable`, with a delivery
header.
"""

from tidemill.scheduling.scheduler import ReplicatedStorage, Scheduler

__all__ = ["ReplicatedStorage", "Scheduler"]
