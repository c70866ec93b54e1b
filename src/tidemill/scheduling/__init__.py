"""Records for later: what any Kafka producer puts on a topic with `tidemill.schedule.enable` and a delivery header."""

from tidemill.scheduling.scheduler import ReplicatedStorage, Scheduler

__all__ = ["ReplicatedStorage", "Scheduler"]
