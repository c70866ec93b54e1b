"""Topics as tables on a real local Spark: batch queries."""

import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.integration.spark.queries import ints, table
from tests.integration.spark.topics import LIMIT_S, Outside
from tests.support.metrics import scraped

from tidemill.testing import Broker

KAFKA_TYPES = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)
NO_SERVER = "127.0.0.1:1"

ROWS = 1_000_000
FILTERED_ROWS = 120
FILTERS: list[tuple[str, Callable[[Any], bool], float]] = [
    # what is asked, which rows that are, and which share of all bytes may be fetched for it
    ("offset = 30", lambda row: row.offset == 30, 0.5),
    ("offset <=> 30 and partition = 0", lambda row: (row.offset, row.partition) == (30, 0), 0.25),
    ("offset > 100 and offset <= 110", lambda row: 100 < row.offset <= 110, 0.4),
    ("offset >= 118", lambda row: row.offset >= 118, 0.2),
    ("offset < 5", lambda row: row.offset < 5, 0.5),
    ("offset in (3, 7)", lambda row: row.offset in {3, 7}, 0.5),
    ("not (offset in (3, 7))", lambda row: row.offset not in {3, 7}, 1.0),
    ("partition != 1", lambda row: row.partition != 1, 0.6),
    ("partition not in (0, 5)", lambda row: row.partition == 1, 0.6),
    ("partition is null or topic = 'x'", lambda row: False, 1.0),
    ("topic like 'x%'", lambda row: False, 0.0),
    ("timestamp >= timestamp_millis(1100000)", lambda row: row.ms >= 1_100_000, 0.4),
    ("timestamp > timestamp_millis(1100000) and partition = 1", lambda row: row.ms > 1_100_000 and row.partition, 0.2),
    ("timestamp = timestamp_millis(1005000)", lambda row: row.ms == 1_005_000, 1.0),
    ("timestamp < timestamp_millis(1010000)", lambda row: row.ms < 1_010_000, 1.0),
    ("timestamp > timestamp_millis(9000000)", lambda row: False, 0.0),
]

# Next to other tests on two busy cores the slowest takes 15 s, and the first one starts Spark.
pytestmark = pytest.mark.timeout(120)


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


def test_a_million_rows_are_what_confluent_kafka_reads(spark: SparkSession, outside: Outside, topic: str) -> None:
    rows = spark.range(0, ROWS, 1, 2).selectExpr("concat('k', id % 101) as key", "concat('value ', id) as value")
    sink = {"kafka.bootstrap.servers": outside.servers, "topic": topic, "kafka.compression.type": "lz4"}
    rows.write.format("tidemill").mode("append").options(**sink).save()
    expected: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for message in outside.messages(topic):
        offset, sums = message.offset(), expected[message.partition()]
        sums[0] += 1
        sums[1] += zlib.crc32(message.key()) * (offset % 1009)
        sums[2] += zlib.crc32(message.value()) * (offset % 997)
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
    assert sum(sums[0] for sums in expected.values()) == ROWS
    assert {row.partition: [row.rows, row.keys, row["values"]] for row in found} == dict(expected)


def test_offsets_and_timestamps_bound_a_query(spark: SparkSession, outside: Outside, topic: str) -> None:
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
    with pytest.raises(
        PySparkException, match=f"startingOffsetsByTimestamp: {topic}-1 has no record at or after that time"
    ):
        read(startingOffsetsByTimestamp=times)
    beyond = json.dumps({topic: {"0": 1, "1": 11}})
    with pytest.raises(PySparkException, match=f"endingOffsets: {topic}-1 ends at offset 10, before 11"):
        read(endingOffsets=beyond)
    assert read(endingOffsets=beyond, failOnDataLoss="false") == [0, *range(10, 20)]
    crossed = {"startingOffsets": json.dumps({topic: {"0": 5, "1": 0}}), "endingOffsets": beyond}
    for given in (crossed, {"startingTimestamp": "1005", "endingTimestamp": "1001"}):
        with pytest.raises(
            PySparkException, match=f"{topic}-0 ends at offset 1, before 5 where starting[A-Z][a-z]+ beg"
        ):
            read(**given, failOnDataLoss="false")
    chosen = table(spark, outside, "value binary, offset long", assign=json.dumps({topic: [1]}))
    assert ints(chosen) == list(range(10, 20))
    matching = table(spark, outside, "offset long, value binary", subscribePattern=topic[1:20])
    assert matching.columns == ["offset", "value"]
    assert len(ints(matching)) == 20
    assert table(spark, outside, subscribe=topic, minPartitions="7").rdd.getNumPartitions() in {6, 7, 8}
    assert table(spark, outside, subscribe=topic, maxRecordsPerPartition="3").rdd.getNumPartitions() == 8


@pytest.fixture
def filtered(outside: Outside, topic: str) -> str:
    """Batches of ten records of 2 KB; times go up, but for a few records at the end that are older."""
    for partition in range(2):
        late = [5, 6] if partition else []
        times = [*range(FILTERED_ROWS - len(late)), *late]
        records = [{"value": bytes(2000), "timestamp": 1_000_000 + 1000 * n, "partition": partition} for n in times]
        outside.write(topic, records, **{"batch.num.messages": 10})
    return topic


def test_filters_read_less_and_change_nothing(
    spark: SparkSession, outside: Outside, broker: Broker, filtered: str
) -> None:
    schema = "partition int, offset long, topic string, timestamp timestamp"

    def rows(**options: str) -> DataFrame:
        read = table(spark, outside, schema, subscribe=filtered, **options)
        return read.withColumn("ms", F.unix_millis("timestamp"))

    def fetch(read: DataFrame) -> tuple[list[Row], int]:
        """The rows, and how many bytes of the topic the broker sent for them."""
        before = sent_bytes(broker, filtered)
        found = sorted(read.collect())
        return found, sent_bytes(broker, filtered) - before

    everything, whole_bytes = fetch(rows())
    assert len(everything) == 2 * FILTERED_ROWS
    for condition, matches, share in FILTERS:
        found, some_bytes = fetch(rows(pushFilters="true").where(condition))
        assert found == [row for row in everything if matches(row)], condition
        assert some_bytes <= share * whole_bytes, condition


def test_a_table_can_be_used_many_times(spark: SparkSession, outside: Outside, filtered: str) -> None:
    rows = table(spark, outside, "partition int, offset long", subscribe=filtered)
    first, last = rows.where("partition = 0 and offset < 10"), rows.where("partition = 1 and offset >= 100")
    assert first.union(last).groupBy("partition").count().orderBy("partition").collect() == [(0, 10), (1, 20)]
    assert rows.count() == 2 * FILTERED_ROWS


def sent_bytes(broker: Broker, topic: str) -> int:
    return int(scraped(broker.http).get(f'tidemill_topic_bytes_out_total{{topic="{topic}"}}', 0))


def test_the_remaining_options(spark: SparkSession, outside: Outside, topic: str) -> None:
    outside.write(topic, ({"value": str(n), "partition": 0, "timestamp": 1000 + n} for n in range(10)))
    given = {
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": 1008, "1": 1008}}),
        "rowsPerBatch": "3",
        "groupIdPrefix": "spark",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "kafka.client.id": "tests",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.request.timeout.ms": "20000",
        "kafka.default.api.timeout.ms": "20000",
    }
    assert ints(table(spark, outside, subscribe=topic, **given)) == list(range(8))


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
            "option startingofsets does not exist; did you mean startingOffsets?",
        ),
        ({}, "set one of assign, subscribe, subscribePattern; found none"),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"subscribe": "nowhere-to-be-found"}, "there is no topic nowhere-to-be-found"),
        ({"subscribe": "a", "startingOffsets": "{oops"}, "startingOffsets: '{oops' is not earliest, latest or JSON"),
        ({"subscribe": "a", "maxBytesPerTrigger": "1"}, "maxBytesPerTrigger is for streaming queries"),
        ({"subscribe": "a", "kafka.security.protocol": "MAGIC"}, "security.protocol: MAGIC is not one of"),
        (
            {"subscribe": "a", "kafka.bootstrap.servers": NO_SERVER, "kafka.socket.connection.setup.timeout.ms": "300"},
            NO_SERVER,
        ),
    ],
)
def test_a_wrong_option_is_reported_in_one_line(
    spark: SparkSession, outside: Outside, options: dict[str, str], line: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        table(spark, outside, **options).collect()
    assert any(line in each for each in str(caught.value).splitlines())


def test_a_column_that_there_is_not(spark: SparkSession, outside: Outside, topic: str) -> None:
    with pytest.raises(PySparkException, match="column price does not exist"):
        table(spark, outside, "price int", subscribe=topic).collect()
    with pytest.raises(PySparkException, match="the column value occurs twice"):
        table(spark, outside, "value binary, value binary", subscribe=topic).collect()
    with pytest.raises(PySparkException, match="the column value is binary, not string"):
        table(spark, outside, "value string", subscribe=topic).collect()
