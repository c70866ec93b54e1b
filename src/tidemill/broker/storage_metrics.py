"""The metrics of queries to databases: of timelines, and of streams in ClickHouse.

They have no label for topic or timeline, because one query is about many of them.
"""

from collections.abc import Callable, Iterable, Iterator

from tidemill.broker.server_metrics import network_readings
from tidemill.model.metrics import CounterReading, HistogramReading, MetricReading
from tidemill.model.storage_queries import StorageQueries


def storage_readings(stores: Callable[[], Iterable[StorageQueries]]) -> Callable[[], Iterator[MetricReading]]:
    """The queries to the stores that are open now, by kind."""

    def read() -> Iterator[MetricReading]:
        for queries in stores():
            yield from _of_store(queries)

    return read


def _of_store(queries: StorageQueries) -> Iterator[MetricReading]:
    store = ("store", queries.store)
    for kind, duration in sorted(queries.durations.items()):
        labels = store, ("op", kind.operation), ("type", kind.type), ("filter", kind.filter)
        yield CounterReading("tidemill_storage_queries", "Queries to a database.", duration.count, labels)
        yield HistogramReading(
            "tidemill_storage_query_duration_seconds",
            "Time from a query to its result, with the wait for a connection.",
            duration,
            labels,
        )
    for (kind, reason), count in sorted(queries.errors.items()):
        yield CounterReading(
            "tidemill_storage_query_errors",
            "Queries that a database did not answer.",
            count,
            (store, ("op", kind.operation), ("type", kind.type), ("filter", kind.filter), ("reason", reason)),
        )
    if queries.traffic is not None:
        received, sent = queries.traffic()
        yield from network_readings(queries.store, received, sent, queries.latency)
