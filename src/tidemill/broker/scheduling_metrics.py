"""The metrics of scheduled records that this broker delivers. Those that wait are counted in backlog_metrics.py."""

from collections.abc import Callable, Iterator

from tidemill.model.metrics import CounterReading, HistogramReading, MetricReading
from tidemill.scheduling import Scheduler


def scheduled_readings(scheduler: Scheduler) -> Callable[[], Iterator[MetricReading]]:
    """The scheduled records of each topic."""

    def read() -> Iterator[MetricReading]:
        for topic, stats in scheduler.stats:
            label = ("topic", topic)
            yield CounterReading(
                "tidemill_scheduled_records_delivered",
                "Scheduled records that were stored in their partitions when they were due.",
                stats.delivered,
                (label,),
            )
            yield CounterReading(
                "tidemill_scheduled_records_dropped",
                "Scheduled records that were due when their partition did not exist any more.",
                stats.dropped,
                (label,),
            )
            yield CounterReading(
                "tidemill_scheduled_delivery_failures",
                "Deliveries of scheduled records that failed and are tried again.",
                stats.failed,
                (label,),
            )
            yield HistogramReading(
                "tidemill_scheduled_lateness_seconds",
                "Time from the due time of a scheduled record until it was stored.",
                stats.lateness,
                (label,),
            )

    return read
