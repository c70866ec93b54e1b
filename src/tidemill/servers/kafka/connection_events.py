"""Counts connections that ended early, by reason: in all for metrics, and since the last look for the log."""

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from tidemill.model.metrics import CounterReading


class EarlyEnd(Enum):
    """Why a connection ended early. The value is the label of the metric."""

    REFUSED = "refused"
    SLOW = "slow"
    HANDSHAKE_FAILED = "handshake failed"
    NOT_AUTHENTICATED = "not authenticated"
    INVALID_REQUEST = "invalid request or login"


class ConnectionEvents:
    """The early ends of one server's connections."""

    def __init__(self) -> None:
        self._totals = Counter[EarlyEnd]()
        self._seen = Counter[EarlyEnd]()

    def count(self, reason: EarlyEnd) -> None:
        """Count one."""
        self._totals[reason] += 1

    def news(self, reason: EarlyEnd) -> int:
        """How many there were since the last call."""
        new = self._totals[reason] - self._seen[reason]
        self._seen[reason] = self._totals[reason]
        return new

    def readings(self) -> Iterator[CounterReading]:
        """The counts as metrics."""
        for reason in EarlyEnd:
            labels = (("reason", reason.value),)
            yield CounterReading(
                "tidemill_kafka_connections_ended_early",
                "Connections that the Kafka server refused or closed.",
                self._totals[reason],
                labels,
            )
