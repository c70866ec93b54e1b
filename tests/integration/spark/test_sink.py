"""The sinks on a real Spark: what a failed, stopped or repeated micro-batch leaves, and mistakes in one line each."""

import json
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.spark.queries import run, stream, to_topic
from tests.integration.spark.topics import Outside
from tests.support.chdb_front import running_front
from tests.support.waiting import eventually

from tidemill import Timeline
from tidemill.client.kafka import LATEST, KafkaClient
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.clickhouse.core.addresses import parse_address
from tidemill.pipelines.clickhouse.core.tables import stage_of
from tidemill.pipelines.clickhouse.target_table import TargetTable
from tidemill.pipelines.run.runner import tend
from tidemill.pipelines.sink.registry import sink_types, writer_of
from tidemill.pipelines.spark.sinks import start_pipeline
from tidemill.pipelines.spec.folder import SPEC
from tidemill.pipelines.spec.loading import load
from tidemill.testing import Broker

NO_SERVER = "127.0.0.1:1"
DUE_MS = 4_102_444_800_000
"""In the year 2100."""

pytestmark = pytest.mark.timeout(240)


def open_records(outside: Outside, topic: str) -> int:
    """How many records readers of committed records have to wait for."""
    parts = {TopicPartition(topic, index): LATEST for index in range(2)}
    with KafkaClient({"bootstrap.servers": outside.servers}) as client:
        all_of_them, theirs = (client.list_offsets(parts, committed=only) for only in (False, True))
    return sum(all_of_them[part].offset - theirs[part].offset for part in parts)


def test_a_micro_batch_that_fails_leaves_nothing_open(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write_values(topic, range(10))
    outside.write_values(topic, [-1], partition=1)
    failing = "if(value = '-1', raise_error('no good'), value) as value"
    rows = stream(spark, outside, subscribe=topic).selectExpr("key", failing)
    with pytest.raises(PySparkException, match="no good"):
        run(rows, outside, copy, tmp_path)
    eventually(lambda: open_records(outside, copy) == 0)  # the transactions' timeout is five minutes
    rows = stream(spark, outside, subscribe=topic, minPartitions="4")
    run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(-1, 10))


def test_a_query_that_is_stopped_in_a_micro_batch_leaves_nothing_open(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write_values(topic, range(20_000))
    outside.write_values(topic, range(20_000, 20_002), partition=1)
    slow = "if(value = '20001', concat(value, left(reflect('java.lang.Thread', 'sleep', bigint(60000)), 0)), value)"
    rows = stream(spark, outside, subscribe=topic, rowsPerBatch="1000").selectExpr("key", f"{slow} as value")
    query = to_topic(rows, outside, copy, tmp_path, availableNow=True)
    try:
        eventually(lambda: query.exception() is not None or open_records(outside, copy) > 0)
    finally:
        query.stop()
    eventually(lambda: open_records(outside, copy) == 0)
    run(stream(spark, outside, subscribe=topic), outside, copy, tmp_path)
    assert outside.values(copy) == list(range(20_002))


def test_a_failed_write_is_reported_in_one_line(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    rows = spark.range(1).selectExpr("'x' as value", "cast(null as string) as topic")
    options = {"kafka.bootstrap.servers": outside.servers, "kafka.socket.connection.setup.timeout.ms": "300"}
    writer = rows.write.format("tidemill").mode("append").options(**options)
    with pytest.raises(PySparkException, match="a row has no topic; fill the column topic or set the option topic"):
        writer.save()
    with pytest.raises(PySparkException, match=NO_SERVER):
        writer.option("kafka.bootstrap.servers", NO_SERVER).option("topic", topic).save()
    outside.write_values(topic, [1])
    given = {"kafka.bootstrap.servers": outside.servers, "topic": topic}
    unnamed = stream(spark, outside, subscribe=topic).select("value").writeStream.format("tidemill").options(**given)
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path))
    try:
        query = unnamed.trigger(availableNow=True).start()
        with pytest.raises(PySparkException, match="checkpointLocation is missing; set it as an option of the writer"):
            query.awaitTermination()
    finally:
        spark.conf.unset(setting)


def test_rows_become_messages_and_rows_of_a_table_once(
    spark: SparkSession, broker: Broker, outside: Outside, topic: str, tmp_path: Path
) -> None:
    root = tmp_path / "shop"
    with running_front(tmp_path / "chdb") as port, Timeline(broker.grpc, topic) as timeline:
        url = f"http://127.0.0.1:{port}/shop"
        spec = {
            "name": "shop",
            "broker": outside.servers,
            "timelines": broker.grpc,
            "sources": {"orders": {"topic": topic, "schema": "item string, count int, due_ms bigint"}},
            "transformations": {"due": {"file": "due.sql"}},
            "sinks": {
                "later": {"from": "due", "timeline": topic, "due": "due", "body": "item", "key": "item"},
                "table": {"from": "orders", "clickhouse": url, "table": "orders", "by": "item"},
            },
        }
        root.mkdir()
        (root / SPEC).write_text(json.dumps(spec))
        (root / "due.sql").write_text("select item, timestamp_millis(due_ms) as due from orders")
        timeline.create()
        outside.write(topic, ({"value": order(n)} for n in (1, 2, 2)))
        run_once(spark, root)
        for sink in ("later", "table"):
            for note in (root / ".tidemill" / "checkpoints" / sink / "commits").iterdir():
                note.unlink()
        outside.write(topic, [{"value": order(3)}])
        run_once(spark, root)
        found = sorted(stored.body.decode() for stored in timeline.messages())
        assert found == ["item 1", "item 2", "item 2", "item 3"]
        assert {stored.key for stored in timeline.messages()} == {b"item 1", b"item 2", b"item 3"}
        with TargetTable(parse_address(url), stage_of("shop", "orders", "look")) as table:
            assert table.ask("SELECT toString((item, count)) FROM shop.orders ORDER BY item") == [
                "('item 1',1)",
                "('item 2',2)",
                "('item 2',2)",
                "('item 3',3)",
            ]


def order(number: int) -> str:
    return json.dumps({"item": f"item {number}", "count": number, "due_ms": DUE_MS + number})


def run_once(spark: SparkSession, root: Path) -> None:
    queries = start_pipeline(spark, load(root, sink_types()), writer_of, print, once=True)
    tend(queries, threading.Event(), lambda _: None)
