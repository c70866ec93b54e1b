"""A real pipeline is shown by its broker: reported by its runner, and by the listener of its session."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from pyspark.sql import SparkSession
from tests.integration.spark.commands import make_pipeline, order
from tests.integration.spark.topics import LIMIT_S, Outside
from tests.support.waiting import eventually

import tidemill.spark
from tidemill.pipelines.run.core.pipeline_facts import pipeline_facts
from tidemill.pipelines.run.pipeline_reporter import PipelineReporter
from tidemill.pipelines.run.runner import tend
from tidemill.pipelines.run.status import wall_ms
from tidemill.pipelines.sink.registry import sink_types, writer_of
from tidemill.pipelines.spark.sinks import start_pipeline
from tidemill.pipelines.spec.loading import load
from tidemill.testing import Broker


def shown(broker: Broker, name: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{broker.http}/api/v1/pipelines/{name}", timeout=LIMIT_S).json()
    return found


def test_a_run_is_shown_by_its_broker(spark: SparkSession, broker: Broker, outside: Outside, tmp_path: Path) -> None:
    source, sink = outside.create("reported-orders"), outside.create("reported-revenue")
    outside.write(source, ({"value": json.dumps(order(number))} for number in range(30)))
    make_pipeline(tmp_path / "reported", broker.bootstrap_servers, source, sink)
    folder = load(tmp_path / "reported", sink_types())
    listener = tidemill.spark.report(spark, {"kafka.bootstrap.servers": broker.bootstrap_servers}, name="session")
    try:
        facts = pipeline_facts(folder.spec, folder.steps)
        with PipelineReporter(facts, folder.spec.reached.options, print, wall_ms) as to_broker:
            queries = start_pipeline(spark, folder, writer_of, print, once=True)
            tend(queries, threading.Event(), to_broker.take)
        by_runner = shown(broker, "reported")
        eventually(lambda: shown(broker, "session").get("state") == "stopped", "the listener reports the end")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    assert (by_runner["state"], by_runner["reads"], by_runner["writes"]) == ("stopped", [source], [sink])
    revenue, files = by_runner["queries"]
    for query in (revenue, files):
        assert (query["rows_in"], query["lag"], query["error"]) == (30, 0, "")
        assert [(each["topic"], each["partitions"], each["lag"]) for each in query["sources"]] == [(source, 2, 0)]
        assert query["batch_s"] > 0
        assert abs(query["progress_ms"] - time.time() * 1000) < LIMIT_S * 1000
    assert (revenue["group"], revenue["state_rows"]) == ("reported-revenue", 3)
    assert revenue["state_bytes"] > 0
    assert files["state_rows"] is None
    by_listener = {each["query"]: each for each in shown(broker, "session")["queries"]}
    assert by_listener.keys() == {"revenue", "files"}
    assert by_listener["revenue"]["rows_in"] == 30
    text = httpx.get(f"{broker.http}/metrics", timeout=LIMIT_S).text
    assert 'tidemill_pipeline_rows_in_total{pipeline="reported",query="revenue"' in text
