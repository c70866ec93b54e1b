"""Topics as DataFrames on a real local Spark; all in one file, so that one process starts one session."""

import json
import runpy
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.spark.topics import LIMIT_S, Outside, until

from tidemill.testing import Broker

KAFKA_TYPES = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)
NOBODY = "127.0.0.1:1"
EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_revenue.py"

# Beside other tests on two busy cores the slowest takes 15 s, and the first one starts Spark.
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="session")
def outside(broker: Broker) -> Outside:
    return Outside(broker.bootstrap_servers)


@pytest.fixture
def topic(outside: Outside, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    return outside.create(name, retention_ms="-1")  # the tests' times are long ago


def table(spark: SparkSession, outside: Outside, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("tidemill").options(**{"kafka.bootstrap.servers": outside.servers, **options})
    return (reader if schema is None else reader.schema(schema)).load()


def stream(spark: SparkSession, outside: Outside, **options: Any) -> DataFrame:
    given = {"kafka.bootstrap.servers": outside.servers, "startingOffsets": "earliest", **options}
    return spark.readStream.format("tidemill").options(**given).load()


def to_topic(rows: DataFrame, outside: Outside, topic: str, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": outside.servers, "topic": topic, "checkpointLocation": str(checkpoint)}
    return rows.select("key", "value").writeStream.format("tidemill").options(**options).trigger(**trigger).start()


def run(rows: DataFrame, outside: Outside, topic: str, checkpoint: Path) -> StreamingQuery:
    query = to_topic(rows, outside, topic, checkpoint, availableNow=True)
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()
    return query


def ints(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.select(F.col("value").cast("string").alias("value")).collect())


# The source in batch queries


def test_types_and_nulls_are_those_of_sparks_own_source(spark: SparkSession, outside: Outside, topic: str) -> None:
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("none", None)]
    outside.write(
        topic,
        [
            {"key": b"k", "value": b"\x00\xfe", "headers": headers, "partition": 1, "timestamp": 1_700_000_000_123},
            {"key": None, "value": b"", "partition": 1, "timestamp": 1},
            {"key": b"", "value": None, "partition": 1, "timestamp": 2},
        ],
    )
    rows = table(spark, outside, subscribe=topic, includeHeaders="true")
    assert rows.schema.simpleString() == KAFKA_TYPES
    first, second, third = rows.withColumn("ms", F.unix_millis("timestamp")).orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"k", b"\x00\xfe", topic, 1)
    assert (first.offset, first.ms, first.timestampType) == (0, 1_700_000_000_123, 0)
    assert [(pair.key, pair.value) for pair in first.headers] == headers
    assert (second.key, bytes(second.value), second.headers) == (None, b"", None)
    assert (bytes(third.key), third.value, third.ms) == (b"", None, 2)
    assert "headers" not in table(spark, outside, subscribe=topic).columns


def test_two_hundred_thousand_rows_are_what_confluent_kafka_reads(
    spark: SparkSession, outside: Outside, topic: str
) -> None:
    outside.write(
        topic, ({"key": f"k{n % 101}", "value": f"value {n}"} for n in range(200_000)), **{"compression.type": "lz4"}
    )
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for message in outside.read(topic):
        sums = expected[message.partition()]
        sums[0] += 1
        sums[1] += zlib.crc32(message.key()) * (message.offset() % 1009)
        sums[2] += zlib.crc32(message.value()) * (message.offset() % 997)
    found = (
        table(spark, outside, subscribe=topic, minPartitions="4")
        .groupBy("partition")
        .agg(
            F.count("*").alias("rows"),
            F.sum(F.crc32("key") * (F.col("offset") % 1009)).alias("keys"),
            F.sum(F.crc32("value") * (F.col("offset") % 997)).alias("values"),
        )
        .collect()
    )
    assert sum(sums[0] for sums in expected.values()) == 200_000
    assert {row.partition: [row.rows, row.keys, row["values"]] for row in found} == dict(expected)


def test_where_a_query_begins_and_ends(spark: SparkSession, outside: Outside, topic: str) -> None:
    for partition in range(2):
        stamped = ({"value": str(10 * partition + n), "partition": partition, "timestamp": 1000 + n} for n in range(10))
        outside.write(topic, stamped)

    def read(**options: Any) -> list[int]:
        return ints(table(spark, outside, "value binary", **{"subscribe": topic, **options}))

    begin, end = json.dumps({topic: {"0": 8, "1": -2}}), json.dumps({topic: {"0": -1, "1": 1}})
    assert read(startingOffsets=begin, endingOffsets=end) == [8, 9, 10]
    assert read(startingTimestamp="1009") == [9, 19]
    assert read(startingTimestamp="1007", endingTimestamp="1008") == [7, 17]
    times = json.dumps({topic: {"0": 1008, "1": 5000}})
    late = {"startingOffsetsByTimestamp": times, "startingOffsetsByTimestampStrategy": "latest"}
    assert read(**late) == [8, 9]
    with pytest.raises(PySparkException, match=f"startingOffsetsByTimestamp: {topic}-1 has no record so late"):
        read(startingOffsetsByTimestamp=times)
    chosen = table(spark, outside, "value binary, offset long", assign=json.dumps({topic: [1]}))
    assert ints(chosen) == list(range(10, 20))
    matching = table(spark, outside, "offset long, value binary", subscribePattern=topic[:20] + ".*")
    assert matching.columns == ["offset", "value"]
    assert len(ints(matching)) == 20
    assert table(spark, outside, subscribe=topic, minPartitions="7").rdd.getNumPartitions() in {6, 7, 8}
    assert table(spark, outside, subscribe=topic, maxRecordsPerPartition="3").rdd.getNumPartitions() == 8


def test_aborted_transactions_are_never_read(spark: SparkSession, outside: Outside, topic: str) -> None:
    producer = Producer({"bootstrap.servers": outside.servers, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    for value, commit in ((b"1", True), (b"2", False), (b"3", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(LIMIT_S) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(LIMIT_S)
    assert ints(table(spark, outside, subscribe=topic)) == [1, 3]
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert ints(table(spark, outside, subscribe=topic, **uncommitted)) == [1, 2, 3]


def test_spark_finds_the_format_by_itself(spark: SparkSession, outside: Outside, topic: str) -> None:
    outside.write_values(topic, [5])
    assert ints(table(spark.newSession(), outside, subscribe=topic)) == [5]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"subscribe": "a", "startingOfsets": "earliest"},
            "there is no option startingofsets; did you mean startingOffsets?",
        ),
        ({}, "give one of assign, subscribe, subscribePattern; here is none"),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"subscribe": "nowhere-to-be-found"}, "there is no topic nowhere-to-be-found"),
        ({"subscribe": "a", "startingOffsets": "{oops"}, "startingOffsets: '{oops' is not earliest, latest or JSON"),
        ({"subscribe": "a", "maxBytesPerTrigger": "1"}, "maxBytesPerTrigger is for streaming queries"),
        ({"subscribe": "a", "kafka.security.protocol": "MAGIC"}, "security.protocol: MAGIC is none of"),
        (
            {"subscribe": "a", "kafka.bootstrap.servers": NOBODY, "kafka.socket.connection.setup.timeout.ms": "300"},
            NOBODY,
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    spark: SparkSession, outside: Outside, options: dict[str, str], line: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        table(spark, outside, **options).collect()
    assert any(line in each for each in str(caught.value).splitlines())


def test_a_column_that_there_is_not(spark: SparkSession, outside: Outside, topic: str) -> None:
    with pytest.raises(PySparkException, match="there is no column price"):
        table(spark, outside, "price int", subscribe=topic).collect()
    with pytest.raises(PySparkException, match="the column value is binary, not string"):
        table(spark, outside, "value string", subscribe=topic).collect()


# Streaming queries


def test_a_query_goes_on_from_its_checkpoint_and_its_lag_can_be_seen(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic, maxOffsetsPerTrigger="40", **{"kafka.group.id": topic})
    outside.write_values(topic, range(100))
    outside.write_values(topic, range(100, 120), partition=1)
    first = run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(120))
    assert [progress.numInputRows for progress in first.recentProgress if progress.numInputRows] == [39, 39, 39, 3]
    assert outside.group(topic) == {0: 100, 1: 20}
    assert json.loads(first.recentProgress[0].sources[0].latestOffset)[topic] == {"0": 100, "1": 20}

    outside.write_values(topic, range(120, 150))
    assert outside.group(topic)[0] == 100  # the lag of 30 that every tool shows
    run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(150))
    assert outside.group(topic) == {0: 130, 1: 20}


def test_a_micro_batch_that_runs_again_is_not_written_again(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic)
    outside.write_values(topic, range(50))
    run(rows, outside, copy, tmp_path)
    # As after a crash of the driver between the sink's commit and Spark's own note of it.
    for note in (tmp_path / "commits").iterdir():
        note.unlink()
    outside.write_values(topic, range(50, 60))
    run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(60))


def test_a_trigger_can_be_limited_by_bytes(spark: SparkSession, outside: Outside, topic: str, tmp_path: Path) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write(topic, ({"value": f"{n:01000}", "partition": n % 2} for n in range(200)))
    query = run(stream(spark, outside, subscribe=topic, maxBytesPerTrigger="70000"), outside, copy, tmp_path)
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert outside.values(copy) == list(range(200))
    assert len(sizes) >= 3
    assert max(sizes) <= 70


def test_new_partitions_are_read_while_the_query_runs(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write_values(topic, [1])
    query = to_topic(
        stream(spark, outside, subscribe=topic), outside, copy, tmp_path, processingTime="200 milliseconds"
    )
    try:
        until(lambda: query.exception() is not None or outside.values(copy) == [1])
        outside.grow(topic, 3)
        outside.write_values(topic, [2, 3], partition=2)
        until(lambda: query.exception() is not None or outside.values(copy) == [1, 2, 3])
        assert query.exception() is None
    finally:
        query.stop()


def test_retention_that_overtakes_the_reader(spark: SparkSession, outside: Outside, topic: str, tmp_path: Path) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic)
    outside.write_values(topic, range(5))
    run(rows, outside, copy, tmp_path)
    outside.write_values(topic, range(5, 12))
    outside.forget(topic, {0: 9})
    with pytest.raises(PySparkException, match=f"offsets 5 to 8 of {topic}-0 are gone: the log begins at 9"):
        run(rows, outside, copy, tmp_path)
    run(stream(spark, outside, subscribe=topic, failOnDataLoss="false"), outside, copy, tmp_path)
    assert outside.values(copy) == [*range(5), 9, 10, 11]


def test_a_topic_that_was_deleted_and_created_again(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic)
    outside.write_values(topic, range(3))
    run(rows, outside, copy, tmp_path)
    outside.recreate(topic)
    outside.write_values(topic, range(10, 15))
    with pytest.raises(PySparkException, match=f"topic {topic} was deleted and created again"):
        run(rows, outside, copy, tmp_path)
    run(stream(spark, outside, subscribe=topic, failOnDataLoss="false"), outside, copy, tmp_path)
    assert outside.values(copy) == [0, 1, 2, 10, 11, 12, 13, 14]


# The sink in batch queries


def test_columns_become_records(spark: SparkSession, outside: Outside, topic: str) -> None:
    other = outside.create(f"{topic}-other", 3)
    schema = "topic string, partition int, key string, value binary, headers array<struct<key:string,value:binary>>"
    rows = spark.createDataFrame(
        [
            (topic, 1, "a", bytearray(b"one"), [("h", bytearray(b"x")), ("n", None)]),
            (other, 2, None, bytearray(b"two"), None),
            (other, 0, "c", None, []),
        ],
        schema,
    )
    options = {"kafka.bootstrap.servers": outside.servers, "kafka.compression.type": "zstd"}
    rows.write.format("tidemill").mode("append").options(**options).save()
    [first] = outside.read(topic)
    assert (first.partition(), first.key(), first.value()) == (1, b"a", b"one")
    assert first.headers() == [("h", b"x"), ("n", None)]
    found = {(m.partition(), m.key(), m.value(), m.headers() is None) for m in outside.read(other)}
    assert found == {(2, None, b"two", True), (0, b"c", None, True)}


def test_keys_land_where_librdkafka_puts_them(spark: SparkSession, outside: Outside, topic: str) -> None:
    theirs, ours = outside.create(f"{topic}-theirs", 5), outside.create(f"{topic}-ours", 5)
    outside.write(theirs, ({"key": f"key {n}", "value": b""} for n in range(200)))
    rows = spark.range(200).selectExpr("concat('key ', id) as key", "'' as value")
    options = {"kafka.bootstrap.servers": outside.servers, "topic": ours}
    rows.write.format("tidemill").mode("append").options(**options).save()
    places = [Counter((m.key(), m.partition()) for m in outside.read(name)) for name in (theirs, ours)]
    assert places[0] == places[1]


def test_nothing_of_a_failed_write_is_visible(spark: SparkSession, outside: Outside, topic: str) -> None:
    rows = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) as value", "if(id = 999, 77, 0) as partition")
    options = {"kafka.bootstrap.servers": outside.servers, "topic": topic}
    writer = rows.write.format("tidemill").mode("append").options(**options)
    with pytest.raises(PySparkException, match=f"topic {topic} has no partition 77; it has 0 to 1"):
        writer.save()
    assert outside.read(topic) == []
    outside.write_values(topic, [1])
    until(lambda: outside.values(topic) == [1])  # no transaction is left open that would hide it


@pytest.mark.parametrize(
    ("columns", "options", "line"),
    [
        ("id", {"topic": "a"}, "the rows have no column value; they have id"),
        ("'x' as value", {}, "give the option topic or a column topic"),
        ("id as value", {"topic": "a"}, "the column value is bigint; it must be string or binary"),
        ("'x' as value, 1 as price", {"topic": "a"}, "there is no place for a column price"),
        ("'x' as value", {"topic": "a b"}, "topic: 'a b' is not a topic name"),
        ("'x' as value", {"topic": "a", "kafka.compression.type": "rar"}, "kafka.compression.type: 'rar' is none of"),
    ],
)
def test_rows_that_cannot_be_written(
    spark: SparkSession, outside: Outside, columns: str, options: dict[str, str], line: str
) -> None:
    given = {"kafka.bootstrap.servers": outside.servers, **options}
    writer = spark.range(1).selectExpr(*columns.split(", ")).write.format("tidemill").mode("append").options(**given)
    with pytest.raises(PySparkException) as caught:
        writer.save()
    assert any(line in each for each in str(caught.value).splitlines())


# The example


def test_the_example_counts_each_order_once(spark: SparkSession, outside: Outside, tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("127.0.0.1:9092", outside.servers)
    # Other tests write to topics of these names too.
    text = text.replace('"orders"', '"example-orders"').replace('"topic": "revenue"', '"topic": "example-revenue"')
    text = text.replace('"subscribe", "revenue"', '"subscribe", "example-revenue"')
    program = tmp_path / "example.py"
    program.write_text(text.replace("revenue-checkpoint", str(tmp_path / "checkpoint")), encoding="utf-8")
    example = runpy.run_path(str(program))
    sums: Counter[str] = Counter()
    for _ in range(2):
        example["place_orders"](1000)
        example["run"](spark)
    for message in outside.read("example-orders"):
        order = json.loads(message.value())
        sums[order["item"]] += order["price"] * order["count"]
    assert {row.item: int(row.revenue) for row in example["totals"](spark).collect()} == dict(sums)
