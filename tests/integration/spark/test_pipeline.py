"""Pipelines on a real Spark: archives, their audit and replay, a driver that is killed, pipelines of a folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as AdminPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from tests.support.waiting import eventually

from tidemill.client.kafka import EARLIEST, LATEST, KafkaClient
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.audit import audit, lost, verdict_text
from tidemill.pipelines.lake.interface import CHECKPOINT, Lake
from tidemill.pipelines.lake.opening import open_lake
from tidemill.pipelines.lake.parquet import LOG
from tidemill.pipelines.lake.replay import Replay, ReplayRequest
from tidemill.pipelines.run.runner import tend
from tidemill.pipelines.run.status import Reporter, status_of
from tidemill.pipelines.sink.registry import sink_types, writer_of
from tidemill.pipelines.spark.archive import Archive, start_archive
from tidemill.pipelines.spark.latest import Latest, start_latest
from tidemill.pipelines.spark.sinks import start_pipeline
from tidemill.pipelines.spark.topic import records_of
from tidemill.pipelines.spec.core.broker import KafkaBroker
from tidemill.pipelines.spec.core.spec import Sink, WrongSpec
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.folder import SPEC
from tidemill.pipelines.spec.loading import load
from tidemill.records.arrow import Decoder
from tidemill.testing import Broker

LIMIT_S = 240
LEAN_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

pytestmark = pytest.mark.timeout(600)


def create(broker: Broker, topic: str, partitions: int = 2) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions)]).values():
        future.result(LIMIT_S)
    return topic


def write(broker: Broker, topic: str, values: list[Any], **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
    for value in values:
        text = value if isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text.encode(), key=str(value)[:9], headers=[("n", b"1")])
    if transactional:
        producer.commit_transaction(LIMIT_S)
    assert producer.flush(LIMIT_S) == 0


def values_in(broker: Broker, topic: str) -> list[bytes]:
    found: list[bytes] = []
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        for index in client.metadata([topic])[topic].leaders:
            part = TopicPartition(topic, index)
            begin, end = (client.list_offsets({part: at}, committed=True)[part].offset for at in (EARLIEST, LATEST))
            decoder, at = Decoder(topic, index, columns=("value",)), begin
            for piece in client.read_range(part, begin, end, committed=True) if begin < end else ():
                for rows in decoder.decode(piece.records, at, end, piece.aborted):
                    found.extend(rows.column("value").to_pylist())
                at = piece.next_offset
    return found


def archive(spark: SparkSession, broker: Broker, topic: str, lake: Lake, **more: Any) -> None:
    wanted = Archive(KafkaBroker(broker.bootstrap_servers), topic, **more)
    tend(start_archive(spark, lake, wanted), threading.Event(), lambda _: None)


def test_a_topic_is_archived_once_audited_and_replayed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = create(broker, "archived")
    lake = open_lake(tmp_path / topic)
    write(broker, topic, list(range(100)))
    archive(spark, broker, topic, lake)
    write(broker, topic, list(range(100, 150)), **{"transactional.id": "t"})
    archive(spark, broker, topic, lake, bytes_per_trigger=1000)
    archive(spark, broker, topic, lake)
    found = audit(lake)
    assert sum(verdict.rows for verdict in found.verdicts) == 150
    assert not any(verdict.doubled for verdict in found.verdicts)
    assert {verdict_text(verdict, None) for verdict in found.verdicts} <= {"contiguous", "holes"}
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        losses = lost(client, topic, found.verdicts)
        assert set(losses.values()) == {0}
        create(broker, "archived-again")
        assert Replay(client, lake, ReplayRequest("archived-again")).run(lambda _: None) == 150
        assert (
            Replay(client, lake, ReplayRequest("archived-never", since_ms=int(time.time() * 1000) + 3_600_000)).run(
                lambda _: None
            )
            == 0
        )
    assert values_in(broker, "archived-again") == values_in(broker, topic)
    table = pq.read_table(lake.root)
    assert table["date"].to_pylist() == [str(moment.date()) for moment in table["timestamp"].to_pylist()]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_archives_too(spark: SparkSession, broker: Broker, tmp_path: Path, kind: str) -> None:
    topic = create(broker, f"archived-{kind}", partitions=1)
    lake = open_lake(tmp_path / topic, kind)
    for begin in (0, 20):
        write(broker, topic, list(range(begin, begin + 20)))
        archive(spark, broker, topic, lake)
    found = audit(lake)
    assert found.contiguous
    assert [(verdict.rows, verdict.last) for verdict in found.verdicts] == [(40, 39)]
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        create(broker, f"{topic}-again", partitions=1)
        assert Replay(client, lake, ReplayRequest(f"{topic}-again")).run(lambda _: None) == 40
    assert values_in(broker, f"{topic}-again") == values_in(broker, topic)


def test_an_archive_without_its_checkpoint_continues_after_its_rows(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = create(broker, "forgotten")
    lake = open_lake(tmp_path / topic)
    write(broker, topic, list(range(20)))
    archive(spark, broker, topic, lake)
    (lake.root / CHECKPOINT).rename(tmp_path / "lost")
    write(broker, topic, list(range(20, 30)))
    archive(spark, broker, topic, lake)
    assert audit(lake).contiguous
    assert sorted(int(value) for value in pq.read_table(lake.root)["value"].to_pylist()) == list(range(30))


def test_an_archive_continues_after_deleted_records_but_not_with_another_topic(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = create(broker, "overtaken", partitions=1)
    lake = open_lake(tmp_path / topic)
    write(broker, topic, list(range(5)))
    archive(spark, broker, topic, lake)
    write(broker, topic, list(range(5, 12)))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    [gone] = admin.delete_records([AdminPartition(topic, 0, 9)]).values()
    gone.result(LIMIT_S)
    with pytest.raises(
        PipelineError, match=r"offsets 5 to 8 of overtaken-0 were deleted: .*; give --skip-lost to continue"
    ):
        archive(spark, broker, topic, lake)
    archive(spark, broker, topic, lake, skip_lost=True)
    assert sorted(pq.read_table(lake.root)["offset"].to_pylist()) == [*range(5), 9, 10, 11]
    admin.delete_topics([topic])[topic].result(LIMIT_S)
    write(broker, create(broker, topic, partitions=1), list(range(20)))
    with pytest.raises(PipelineError, match=r"was deleted and created again .*, so write it to another folder$"):
        archive(spark, broker, topic, lake, skip_lost=True)


def test_a_driver_that_is_killed_neither_loses_nor_doubles(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = create(broker, "killed")
    lake = open_lake(tmp_path / topic)
    write(broker, topic, list(range(50)))
    command = [sys.executable, "-m", "tidemill", "pipeline", "archive", topic, "--to", str(tmp_path), "--follow"]
    environment = os.environ | {"TIDEMILL_BOOTSTRAP": broker.bootstrap_servers, "JAVA_TOOL_OPTIONS": LEAN_JAVA}
    said = tmp_path / "said"
    with (
        said.open("w") as out,
        subprocess.Popen([*command, "-v", "--master", "local[1]"], env=environment, stdout=out, stderr=out) as driver,
    ):

        def arrived(path: Path) -> bool:
            assert driver.poll() is None, said.read_text()
            return path.exists()

        try:
            eventually(lambda: arrived(lake.root / LOG / "000000000000.json"), "the first commit")
            write(broker, topic, list(range(50, 100)))
            eventually(lambda: arrived(lake.root / CHECKPOINT / "offsets" / "1"), "the second micro-batch")
        finally:
            driver.send_signal(signal.SIGKILL)
    write(broker, topic, list(range(100, 120)))
    archive(spark, broker, topic, lake)
    assert audit(lake).contiguous
    assert sorted(int(value) for value in pq.read_table(lake.root)["value"].to_pylist()) == list(range(120))


def run_once(spark: SparkSession, root: Path) -> list[str]:
    said: list[str] = []
    folder = load(root, sink_types())
    reporter = Reporter(folder, lambda _: None, lambda: 1)
    tend(start_pipeline(spark, folder, writer_of, said.append, once=True), threading.Event(), reporter)
    reporter.keep("stopped")
    return said


def change(root: Path, old: str, new: str) -> None:
    text = (root / SPEC).read_text()
    assert old in text
    (root / SPEC).write_text(text.replace(old, new))


def order(item: str, price: float, quantity: int) -> dict[str, Any]:
    return {"item": item, "price": price, "quantity": quantity}


def test_the_example_runs_unchanged_and_continues(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    write_example(root, broker.bootstrap_servers)
    create(broker, "orders")
    write(broker, "orders", [order("tea", 2.5, 4), "junk", order("milk", -1, 1)])
    run_once(spark, root)
    write(broker, "orders", [order("tea", 2.5, 2)])
    run_once(spark, root)
    reported = [json.loads(value) for value in values_in(broker, "revenue")]
    assert sorted((each["item"], each["sold"], each["revenue"]) for each in reported) == [
        ("milk", 1, -1.0),
        ("tea", 4, 10.0),
        ("tea", 6, 15.0),
    ]
    files = pq.read_table(root / "lake" / "priced")
    assert sorted(zip(files["item"].to_pylist(), files["total"].to_pylist(), strict=True)) == [
        ("milk", -1.0),
        ("tea", 5.0),
        ("tea", 10.0),
    ]
    status = status_of(root, 1)
    assert status is not None
    assert {(sink["sink"], sink["rows"], sink["lag_records"]) for sink in status["sinks"]} == {
        ("revenue", 1, 0),
        ("files", 1, 0),
    }


def test_tables_of_delta_and_iceberg_get_every_row_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    root = tmp_path / "tables"
    write_example(root, broker.bootstrap_servers)
    create(broker, "table-orders")
    change(root, "topic: orders", "topic: table-orders")
    text = (root / SPEC).read_text()
    sinks = {
        kind: f"  {kind}s:\n    from: priced\n    {kind}: lake/{kind}\n    by: item\n" for kind in ("delta", "iceberg")
    }
    (root / SPEC).write_text(f"{text[: text.index('sinks:')]}sinks:\n{''.join(sinks.values())}")
    write(broker, "table-orders", [order("tea", 2.5, 4), order("milk", 1, 1)])
    run_once(spark, root)
    for kind in sinks:  # as after a crash between the commit of the table and Spark's own note of it
        for note in (root / ".tidemill" / "checkpoints" / f"{kind}s" / "commits").iterdir():
            note.unlink()
    write(broker, "table-orders", [order("tea", 2.5, 2)])
    run_once(spark, root)
    for table in (
        DeltaTable(str(root / "lake" / "delta")).to_pyarrow_table(),
        StaticTable.from_metadata(newest_metadata(root / "lake" / "iceberg")).scan().to_arrow(),
    ):
        rows = zip(table["item"].to_pylist(), table["quantity"].to_pylist(), strict=True)
        assert sorted(rows) == [("milk", 1), ("tea", 2), ("tea", 4)]


@pytest.mark.parametrize(
    "kind", ["delta", pytest.param("parquet", marks=pytest.mark.long), pytest.param("iceberg", marks=pytest.mark.long)]
)
def test_lakes_refuse_other_columns_and_rows_that_their_checkpoint_does_not_know(
    spark: SparkSession, broker: Broker, tmp_path: Path, kind: str
) -> None:
    root, topic = tmp_path / "changing", create(broker, f"changing-{kind}", partitions=1)
    write_example(root, broker.bootstrap_servers)
    change(root, "topic: orders", f"topic: {topic}")
    text = (root / SPEC).read_text()
    (root / SPEC).write_text(f"{text[: text.index('sinks:')]}sinks:\n  lake:\n    from: revenue\n    {kind}: lake\n")
    query, lake = root / "transformations" / "revenue.sql", open_lake(root / "lake", kind)

    def rows() -> int:
        return sum(file.rows for file in lake.files())

    query.write_text("select item, quantity as `offset`, price as `partition` from orders")
    write(broker, topic, [order("tea", 2.5, 4), order("milk", 1, 1)])
    run_once(spark, root)
    assert rows() == 2
    write(broker, topic, [order("tea", 2.5, 2)])
    for columns, line in (
        ("quantity as `offset`, string(price) as `partition`", "partition is double in the lake, and string now"),
        ("quantity as `offset`, price as `partition`, 1 as n", "n is not in the lake, and int now"),
        ("quantity as `offset`", "partition is double in the lake, and missing now"),
    ):
        query.write_text(f"select item, {columns} from orders")
        with pytest.raises(PipelineError, match=rf"sinks\.lake: .* has other columns: {line}") as caught:
            run_once(spark, root)
        assert "\n" not in str(caught.value)
    assert rows() == 2
    query.write_text("select item, price as `partition`, quantity as `offset` from orders")
    run_once(spark, root)
    assert rows() == 3
    shutil.rmtree(root / ".tidemill" / "checkpoints")
    with pytest.raises(PipelineError, match=r"sinks\.lake: .* has rows that are not in the checkpoint .*, so rows"):
        run_once(spark, root)
    assert rows() == 3
    tend(
        start_pipeline(spark, load(root, sink_types()), writer_of, print, once=True, append=True),
        threading.Event(),
        lambda _: None,
    )
    assert rows() == 6


def test_a_table_by_key_refuses_another_schema(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic = create(broker, "priced", partitions=1)
    write(broker, topic, [{"price": 2.5}])
    table = open_lake(tmp_path / topic)

    def latest(schema: str | None) -> None:
        wanted = Latest(KafkaBroker(broker.bootstrap_servers), topic, schema)
        tend(start_latest(spark, table, wanted), threading.Event(), lambda _: None)

    latest("price double")
    write(broker, topic, [{"price": 3.5}])
    for schema, line in (
        ("price int", "price is double in the lake, and int now"),
        ("price double, note string", "note is not in the lake, and string now"),
        ("cost double", "cost is not in the lake, and double now; price is double in the lake, and missing now"),
        (None, "_key is string in the lake, and missing now"),
    ):
        with pytest.raises(PipelineError, match=line):
            latest(schema)
    latest("price double")
    assert pq.read_table(table.root)["price"].to_pylist() == [3.5]  # both records have one key


def newest_metadata(lake: Path) -> str:
    """Options with which another engine opens an Iceberg table."""
    return str(max((lake / "metadata").glob("*.metadata.json")))


def test_rows_with_a_value_are_records_as_they_are(spark: SparkSession) -> None:
    def columns(sql: str, key: str | None) -> list[tuple[str, str]]:
        return records_of(spark.sql(sql), Sink("s", "v", "topic", "t", key=key)).dtypes

    headers = ("headers", "array<struct<key:string,value:binary>>")
    given = "array(named_struct('key', 'a', 'value', binary('b'))) as headers"
    raw = f"select binary('k') as key, binary('v') as value, {given}"
    assert columns(raw, "key") == [("key", "binary"), ("value", "binary"), headers]
    assert columns(raw, None) == [("key", "binary"), ("value", "binary"), headers]
    assert columns("select 1 as id, 'v' as value", "ID") == [("key", "string"), ("value", "string")]
    assert columns("select 'k' as key, 't' as topic, 'v' as value", "topic") == [
        ("key", "string"),
        ("topic", "string"),
        ("value", "string"),
    ]
    kept = [("key", "string"), ("price", "int"), ("value", "string")]  # price is refused then, and not forgotten
    assert columns("select 'tea' as item, 1 as price, 'v' as value", "item") == kept
    assert columns("select 'tea' as item, 1 as price", "item") == [("key", "string"), ("value", "string")]


def test_a_broken_expectation_can_fail_the_pipeline_and_mistakes_are_one_line(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    root = tmp_path / "strict"
    write_example(root, broker.bootstrap_servers)
    create(broker, "strict-orders")
    change(root, "topic: orders", "topic: strict-orders")
    change(root, "otherwise: warn", "otherwise: fail")
    text = (root / SPEC).read_text()
    sinks = "sinks:\n  screen:\n    from: priced\n    console: true\n"
    (root / SPEC).write_text(text[: text.index("sinks:")] + sinks)
    write(broker, "strict-orders", [order("tea", 2.5, 4)])
    assert run_once(spark, root) == ['screen  {"item":"tea","quantity":4,"total":10.0}']
    write(broker, "strict-orders", [order("milk", -1, 1)])
    with pytest.raises(PipelineError, match=r"^screen: expectation sane_price does not hold: price > 0") as caught:
        run_once(spark, root)
    assert "\n" not in str(caught.value)
    change(root, "price > 0", "prise > 0")
    with pytest.raises(WrongSpec, match=r"expectations\.sane_price\.expect: .*prise") as caught:
        run_once(spark, root)
    assert "\n" not in str(caught.value)
    change(root, "prise > 0", "price > 0")
    change(root, "console: true", "parquet: lake\n    by: [item, itm]")
    with pytest.raises(WrongSpec, match=r"sinks\.screen: by names itm, which priced has not; it has item, quantity, "):
        run_once(spark, root)
    still = "def priced(orders):\n    return orders.sparkSession.sql('SELECT 1 AS item, 2 AS quantity, 3 AS total')\n"
    (root / "transformations" / "priced.py").write_text(still)
    with pytest.raises(WrongSpec, match=r"sinks\.screen: priced reads none of the sources"):
        run_once(spark, root)
    (root / "transformations" / "priced.py").write_text("def priced(orders):\n    return ordres\n")
    with pytest.raises(WrongSpec, match=r"priced\.py: line 2: NameError: name 'ordres' is not defined$"):
        run_once(spark, root)
