"""The metrics of queries: streams in the embedded ClickHouse, and a timeline store whose file is removed."""

import time
from collections.abc import Mapping

import pytest
from tests.integration.test_clickhouse import TABLES, create, read, send
from tests.support.metrics import scraped

from tidemill import Message, Timeline
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.testing import Broker


def queries(found: Mapping[str, float], store: str) -> dict[str, float]:
    """The number of queries to a store by operation and type."""
    counts: dict[str, float] = {}
    for operation in ("create", "update", "delete", "read"):
        for kind in ("range", "lookup"):
            labels = f'{{filter="all",op="{operation}",store="{store}",type="{kind}"}}'
            counts[f"{operation} {kind}"] = found.get(f"tidemill_storage_queries_total{labels}", 0)
    return counts


def test_queries_about_streams_in_tables_are_counted() -> None:
    with Broker(flags=TABLES) as broker:
        create(broker, "orders")
        before = queries(scraped(broker.http), "chdb")
        assert before["update lookup"] >= 1  # the tables were made
        send(broker, "orders", b"one", b"two")
        assert read(broker, "orders", 2) == [b"one", b"two"]
        after = queries(scraped(broker.http), "chdb")
        assert after["create range"] >= 1
        assert after["delete range"] == before["delete range"]
        assert queries(scraped(broker.http), "sqlite")["read range"] >= 1


def test_a_timeline_store_that_cannot_write_counts_errors() -> None:
    with Broker() as broker, Timeline(broker.grpc, "line") as timeline:
        timeline.create()
        timeline.schedule([Message(b"kept", time.time() + 3_600)])
        for file in broker.data_dir.glob("timelines*"):
            file.unlink()
        with pytest.raises(StoreUnavailable):
            timeline.schedule([Message(b"lost", time.time() + 3_600)])
        found = scraped(broker.http)
        labels = 'filter="all",op="create",reason="StoreUnavailable",store="sqlite",type="lookup"'
        assert found[f"tidemill_storage_query_errors_total{{{labels}}}"] >= 1
        labels = 'op="scheduled",reason="StoreUnavailable",timeline="line"'
        assert found[f"tidemill_timeline_errors_total{{{labels}}}"] >= 1
