"""The metrics of parallel consumers in a registry of Prometheus."""

from dataclasses import fields
from typing import Any

from prometheus_client import CollectorRegistry

from tidemill.client.parallel.stats import Stats, collector_of


def stats(waiting: int, handler_s: float) -> Stats:
    names = {field.name for field in fields(Stats)} - {"waiting", "handler_s", "committed", "contiguous", "assigned"}
    counts: dict[str, Any] = dict.fromkeys(names, 0)
    committed, contiguous = {"orders-0": 7}, {"orders-0": 9}
    return Stats(
        waiting=waiting, handler_s=handler_s, assigned=(), committed=committed, contiguous=contiguous, **counts
    )


def test_consumers_of_a_registry_share_its_metrics() -> None:
    registry = CollectorRegistry()
    assert collector_of(registry) is collector_of(registry)
    collector_of(registry).add("a", lambda: stats(1, 0.0))
    collector_of(registry).add("b", lambda: stats(2, 0.0))
    collector_of(registry).add("b", lambda: stats(3, 0.5))
    assert registry.get_sample_value("tidemill_parallel_waiting", {"group": "a"}) == 1
    assert registry.get_sample_value("tidemill_parallel_waiting", {"group": "b"}) == 3
    assert registry.get_sample_value("tidemill_parallel_handler_seconds_total", {"group": "b"}) == 0.5
    labels = {"group": "b", "partition": "orders-0"}
    assert registry.get_sample_value("tidemill_parallel_committed_offset", labels) == 7
    assert registry.get_sample_value("tidemill_parallel_contiguous_offset", labels) == 9
