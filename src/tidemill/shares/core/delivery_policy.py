"""How the records of a share group are delivered: locks, the limit of deliveries, and the delay of a retry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryBackoff:
    """The delay before a released record is delivered again.

    `delays_ms` has the delay after the first delivery, after the second, and so on; the last one repeats. Without
    delays a record is available at once, as in Kafka.
    """

    delays_ms: tuple[int, ...] = ()

    def delay_ms(self, deliveries: int) -> int:
        """The delay after this many deliveries."""
        if not self.delays_ms or deliveries < 1:
            return 0
        return self.delays_ms[min(deliveries, len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """The settings of one group. The names in the comments are Kafka's settings."""

    lock_ms: int = 30_000  # share.record.lock.duration.ms
    deliveries_max: int = 5  # share.delivery.count.limit
    locks_max: int = 2_000  # share.partition.max.record.locks
    backoff: RetryBackoff = RetryBackoff()  # tidemill.share.retry.backoff.ms
