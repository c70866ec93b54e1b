"""The overview in the console: what runs, what needs attention, and rates that move."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.broker.history import SAMPLE_MS
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.overview import SERIES, history_of, read_overview
from tidemill.servers.http.broker_summary import visible_topics
from tidemill.servers.http.console.charts import ChartSeries
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.wire.http.overview import History, HistoryQuery

POINTS_MAX = 120
"""Longer histories are shown as means of neighbouring samples."""
MINUTES = (10, 30)
TOPICS_SHOWN = 8
SPARK_POINTS = 40


class OverviewChart(NamedTuple):
    """One chart of the page: the series of the history with their labels."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]
    note: str = ""


CHARTS = (
    OverviewChart("Records produced", "rate", (("records_in", "records"),)),
    OverviewChart("Throughput", "byte_rate", (("bytes_in", "in"), ("bytes_out", "out"))),
    OverviewChart("Produce latency", "seconds", (("produce_p50_s", "median"), ("produce_p99_s", "p99"))),
    OverviewChart("Requests", "rate", (("requests", "requests"), ("errors", "errors"))),
    OverviewChart("Timeline deliveries", "rate", (("deliveries", "messages"),)),
    OverviewChart("Processor", "count", (("cpu_cores", "cores"),)),
    OverviewChart("Memory", "bytes", (("memory_bytes", "resident"),)),
    OverviewChart(
        "Fetch latency",
        "seconds",
        (("fetch_p50_s", "median"), ("fetch_p99_s", "p99")),
        "with the time that readers wait",
    ),
    OverviewChart("Connections", "count", (("connections", "open"),)),
)


class DrawnChart(NamedTuple):
    """A chart with its values."""

    title: str
    note: str
    unit: str
    times_ms: Sequence[int]
    series: Sequence[ChartSeries]


class BusyTopic(NamedTuple):
    """A topic with its recent traffic."""

    topic: str
    records_in: float | None
    bytes_in: float | None
    bytes_out: float | None
    values: Sequence[float | None]


async def overview_page(context: ApiContext, call: ApiCall[HistoryQuery, None]) -> Page:
    """`/`."""
    query = call.query
    topics = visible_topics(context.broker, call.rights)
    history = await history_of(context, call.rights, SERIES, query.minutes, query.broker)
    sees_cluster = describes_cluster(call.rights)
    overview = await read_overview(context, ApiCall(call.request, call.client, None, None)) if sees_cluster else None
    return Page(
        "Overview",
        "overview/page.html",
        {
            "overview": overview,
            "charts": [drawn(chart, history) for chart in CHARTS] if sees_cluster else [],
            "busy": busy_topics(history),
            "asked": query,
            "minutes": MINUTES,
            "own_topics": sum(not each.internal for each in topics),
            "bootstrap": bootstrap_of(context),
            "version": context.facts().get("version", ""),
        },
    )


def describes_cluster(rights: ClientRights) -> bool:
    """Whether the client may see the state of the cluster."""
    return rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def bootstrap_of(context: ApiContext) -> str:
    """An address for Kafka clients."""
    view = context.broker.view
    endpoint = next(iter(view.listeners.values()), None)
    return str(endpoint) if endpoint is not None else "{}:{}".format(*view.address)


def drawn(chart: OverviewChart, history: History, key: str = "") -> DrawnChart:
    """A chart with as many points as it has room for."""
    found = {each.name: each.values for each in history.series if each.key == key}
    size = max(1, len(history.times_ms) // POINTS_MAX)
    # A mean is always over the same samples, so that points stay where they are when time goes on.
    start = -(history.times_ms[0] // SAMPLE_MS) % size
    empty: list[float | None] = [None] * len(history.times_ms)
    lines = [ChartSeries(label, means(found.get(name, empty)[start:], size)) for name, label in chart.lines]
    return DrawnChart(chart.title, chart.note, chart.unit, history.times_ms[start + size - 1 :: size], lines)


def means(values: Sequence[float | None], size: int) -> list[float | None]:
    """The mean of each run of so many values; None for a run without any."""
    found: list[float | None] = []
    for start in range(0, len(values) - size + 1, size):
        known = [value for value in values[start : start + size] if value is not None]
        found.append(sum(known) / len(known) if known else None)
    return found


def busy_topics(history: History) -> list[BusyTopic]:
    """The topics with the most bytes in and out in this time."""
    by_topic: dict[str, dict[str, list[float | None]]] = {}
    for each in history.series:
        if each.key:
            by_topic.setdefault(each.key, {})[each.name] = each.values
    ranked = sorted(by_topic, key=lambda topic: (-_total(by_topic[topic]), topic))
    return [
        BusyTopic(
            topic,
            _last(by_topic[topic].get("topic_records_in")),
            _last(by_topic[topic].get("topic_bytes_in")),
            _last(by_topic[topic].get("topic_bytes_out")),
            (by_topic[topic].get("topic_bytes_in") or [])[-SPARK_POINTS:],
        )
        for topic in ranked[:TOPICS_SHOWN]
        if _total(by_topic[topic])
    ]


def _total(series: dict[str, list[float | None]]) -> float:
    return sum(value or 0.0 for name in ("topic_bytes_in", "topic_bytes_out") for value in series.get(name, ()))


def _last(values: Sequence[float | None] | None) -> float | None:
    return values[-1] if values else 0.0


PAGES: dict[str, PageHandler] = {"GET /": overview_page}
