"""Scheduled records: any Kafka producer can send them, with a header, to a topic with `tidemill.schedule.enable`."""

from tidemill.scheduling.scheduler import ReplicatedStorage, Scheduler

__all__ = ["ReplicatedStorage", "Scheduler"]
