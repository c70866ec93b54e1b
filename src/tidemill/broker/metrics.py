"""Broker metrics: plain counters of the Kafka, gRPC and HTTP servers.

Counting is on the hot path, so it is an addition to an attribute. A server looks up its `ApiTraffic` or `TopicTraffic`
once and adds to it. There are no locks, because everything runs on one event loop. The numbers become Prometheus text
only when it is requested (prometheus.py).
"""

from collections.abc import Awaitable, Callable, Iterable

from tidemill.model.metrics import Histogram, Labels, MetricReading, NetworkTraffic
from tidemill.supervision.supervisor import Supervisor

TOPICS_MAX = 10_000
"""The most topics that are counted by name; further ones are counted together."""
OTHER_TOPICS = "(other)"
RECENT_MAX = 256
"""Durations of one API that wait to be sorted into its histogram: many at once cost less than each alone."""
KAFKA_CLIENTS, GRPC_CLIENTS, HTTP_CLIENTS = "kafka_client", "grpc_client", "http_client"
BROKERS, COORDINATION = "broker", "coordination"
"""Partners of the network, as labels."""
PRODUCE, FETCH = "produce", "fetch"
"""Operations on topics, as labels."""


class ApiTraffic:
    """Requests of one API of one server: how many, how long, which errors."""

    __slots__ = ("_duration", "_recent_s", "errors", "in_flight")

    def __init__(self) -> None:
        self._duration = Histogram()
        self._recent_s: list[float] = []
        self.in_flight = 0
        """Calls that are being served, where the server counts them by API."""
        self.errors: dict[str, int] = {}

    @property
    def duration(self) -> Histogram:
        """How long the requests took that were answered."""
        if self._recent_s:
            self._sort_in()
        return self._duration

    def answered(self, seconds: float) -> None:
        """Count a request that was answered after so long."""
        recent = self._recent_s
        recent.append(seconds)
        if len(recent) >= RECENT_MAX:
            self._sort_in()

    def _sort_in(self) -> None:
        self._duration.add_all(self._recent_s)
        self._recent_s.clear()

    def failed(self, error: str, count: int = 1) -> None:
        """Count an error in a response, by the name of its class."""
        self.errors[error] = self.errors.get(error, 0) + count


class TopicTraffic:
    """The traffic of one topic."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "fetches", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.records_in = 0
        self.bytes_out = 0
        self.fetches = 0
        self.errors: dict[tuple[str, str], int] | None = None
        """Errors by operation and class; most topics have none."""

    def produced(self, size: int, records: int) -> None:
        """Count an appended batch."""
        self.bytes_in += size
        self.records_in += records

    def fetched(self, size: int) -> None:
        """Count batches that were sent to a reader."""
        self.bytes_out += size
        self.fetches += 1

    def failed(self, operation: str, error: str) -> None:
        """Count a batch that was rejected, or a partition that could not be read."""
        if self.errors is None:
            self.errors = {}
        self.errors[operation, error] = self.errors.get((operation, error), 0) + 1


class BrokerMetrics:
    """All metrics of one broker."""

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        self.supervisor = supervisor or Supervisor()
        self.labels: Labels = ()
        """Labels of every metric of this broker: its cluster, and those of the settings."""
        self.apis: dict[tuple[str, str], ApiTraffic] = {}
        self.topics: dict[str, TopicTraffic] = {}
        self.in_flight: dict[str, Callable[[], int]] = {}
        """How many requests each server is serving."""
        self.fetches_waiting = 0
        """Fetch requests of Kafka clients and followers that wait for records."""
        self.networks: dict[str, NetworkTraffic] = {}
        self.connections: dict[str, int] = {}
        self.connections_opened: dict[str, int] = {}
        self.sources: list[Callable[[], Iterable[MetricReading]]] = []
        self.snapshots: list[Callable[[bool], Awaitable[Iterable[MetricReading]]]] = []
        """Metrics that are many or need waiting. The argument asks for each partition.

        The result is read in turns (prometheus.py), so it may not depend on what changes meanwhile.
        """

    def api(self, server: str, name: str) -> ApiTraffic:
        """The numbers of an API of a server, by a name from the server's own table, never from a client."""
        found = self.apis.get((server, name))
        if found is None:
            found = self.apis[server, name] = ApiTraffic()
        return found

    def topic(self, name: str) -> TopicTraffic:
        """The numbers of a topic that exists."""
        try:
            return self.topics[name]
        except KeyError:
            label = name if len(self.topics) < TOPICS_MAX else OTHER_TOPICS
            return self.topics.setdefault(label, TopicTraffic())

    def forget_topic(self, name: str) -> None:
        """Drop the numbers of a deleted topic."""
        self.topics.pop(name, None)

    def network(self, partner: str) -> NetworkTraffic:
        """The bytes and the latency of a kind of partner: clients of a server, brokers, coordination."""
        found = self.networks.get(partner)
        if found is None:
            found = self.networks[partner] = NetworkTraffic()
        return found

    def connection_opened(self, server: str) -> None:
        """Count a connection that a client opened to this server."""
        self.connections[server] = self.connections.get(server, 0) + 1
        self.connections_opened[server] = self.connections_opened.get(server, 0) + 1

    def connection_closed(self, server: str) -> None:
        """Count a connection that a client closed."""
        self.connections[server] = self.connections.get(server, 0) - 1
