"""The metrics of all Kafka connections: what they are used for, and the memory of their requests and responses."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.servers.kafka.connection import ClientConnection

ROUND_TRIPS_MAX = 256
"""How many connections are measured in one sweep."""
PRODUCER, CONSUMER = "producer", "consumer"


class ListenerMetrics:
    """What the Kafka server counts about its connections."""

    def __init__(self, connections: Collection[ClientConnection]) -> None:
        self._connections = connections
        self._failed = Counter[str]()
        self._sweeps = 0

    def ended(self, connection: ClientConnection) -> None:
        """Count the end of a connection."""
        channel = connection.channel
        if channel.has_failed:
            self._failed[PRODUCER] += channel.produces
            self._failed[CONSUMER] += channel.consumes

    def sweep(self, connections: Sequence[ClientConnection]) -> None:
        """Measure the round trips of some connections; others get their turn in the next sweeps."""
        step = len(connections) // ROUND_TRIPS_MAX + 1
        for connection in islice(connections, self._sweeps % step, None, step):
            connection.channel.measure()
        self._sweeps += 1

    def in_flight(self) -> int:
        """How many requests are being served."""
        return sum(each.in_flight() for each in self._connections)

    def readings(self, held_bytes: int, owed_bytes: int) -> Iterator[MetricReading]:
        """The metrics now: of the connections, and of the memory of their requests and unread responses."""
        channels = [each.channel for each in self._connections]
        yield Gauge("tidemill_kafka_request_bytes", "Bytes of requests that wait or are being served.", held_bytes)
        yield Gauge(
            "tidemill_kafka_unread_response_bytes",
            "Bytes of responses that slow clients have not read.",
            owed_bytes,
        )
        for kind, count in (
            (PRODUCER, sum(each.produces for each in channels)),
            (CONSUMER, sum(each.consumes for each in channels)),
        ):
            labels = (("server", "kafka"), ("type", kind))
            yield Gauge(
                "tidemill_channels",
                "Kafka connections and gRPC sessions of clients that produce or consume.",
                count,
                labels,
            )
            yield CounterReading(
                "tidemill_channel_errors",
                "Kafka connections closed for an invalid request or login; gRPC calls of such clients that failed.",
                self._failed[kind],
                labels,
            )
