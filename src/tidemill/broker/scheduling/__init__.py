"""Records for later: what any Kafka producer puts on a topic with `tidemill.schedule.enable` and a delivery header."""

from tidemill.broker.scheduling.scheduler import Replicated, Scheduler

__all__ = ["Replicated", "Scheduler"]
