"""Broker metrics: plain counters of the Kafka, gRPC and HTTP servers.

Counting is on the hot path, so it is an addition to an attribute. A server looks up its `ApiTraffic` or `TopicTraffic`
once and adds to it. There are no locks, because everything runs on one event loop. The numbers become Prometheus text
only when it is requested (prometheus.py).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from tidemill.model.metrics import Gauge
from tidemill.supervision.supervisor import Supervisor

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TOPICS_MAX = 10_000
"""The most topics that are counted by name; further ones are counted together."""
OTHER_TOPICS = "(other)"


class ApiTraffic:
    """Requests of one API: how many, how long, which errors."""

    __slots__ = ("buckets", "errors", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.errors: dict[int, int] = {}

    def answered(self, seconds: float) -> None:
        """Count a request that was answered after so long."""
        self.requests += 1
        self.seconds += seconds
        self.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1

    def failed(self, code: int, count: int = 1) -> None:
        """Count an error code in a response, `count` times."""
        self.errors[code] = self.errors.get(code, 0) + count


class TopicTraffic:
    """The traffic of one topic."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.records_in = 0
        self.bytes_out = 0

    def produced(self, size: int, records: int) -> None:
        """Count an appended batch."""
        self.bytes_in += size
        self.records_in += records

    def fetched(self, size: int) -> None:
        """Count batches that were sent to a reader."""
        self.bytes_out += size


class BrokerMetrics:
    """All metrics of one broker."""

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        self.supervisor = supervisor or Supervisor()
        self.apis: dict[str, ApiTraffic] = {}
        self.topics: dict[str, TopicTraffic] = {}
        self.connections: dict[str, int] = {}
        self.connections_opened: dict[str, int] = {}
        self.sources: list[Callable[[], Iterable[Gauge]]] = []

    def api(self, name: str) -> ApiTraffic:
        """The numbers of an API, by its name in the protocol."""
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiTraffic()
        return found

    def topic(self, name: str) -> TopicTraffic:
        """The numbers of a topic that exists."""
        found = self.topics.get(name)
        if found is None:
            label = name if len(self.topics) < TOPICS_MAX else OTHER_TOPICS
            found = self.topics.setdefault(label, TopicTraffic())
        return found

    def forget_topic(self, name: str) -> None:
        """Drop the numbers of a deleted topic."""
        self.topics.pop(name, None)

    def connection_opened(self, server: str) -> None:
        """Count a connection that a client opened to this server."""
        self.connections[server] = self.connections.get(server, 0) + 1
        self.connections_opened[server] = self.connections_opened.get(server, 0) + 1

    def connection_closed(self, server: str) -> None:
        """Count a connection that a client closed."""
        self.connections[server] = self.connections.get(server, 0) - 1
