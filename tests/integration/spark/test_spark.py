"""Rows into topics on a real local Spark, and the example."""

import json
import runpy
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.spark.topics import Outside
from tests.support.waiting import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_revenue.py"

# Next to other tests on two busy cores the slowest takes 15 s, and the first one starts Spark.
pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_start_that_is_interrupted_leaves_no_jvm(number: int) -> None:
    program = "import tidemill.spark; tidemill.spark.session()"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as started:
        jvm = eventually(
            lambda: next((pid for pid in children(started.pid) if "SparkSubmit" in words_of(pid)), 0), interval_s=0.01
        )
        started.send_signal(number)
    eventually(lambda: "SparkSubmit" not in words_of(jvm))


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def words_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


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


def test_a_failed_write_leaves_no_visible_rows(spark: SparkSession, outside: Outside, topic: str) -> None:
    rows = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) as value", "if(id = 999, 77, 0) as partition")
    options = {"kafka.bootstrap.servers": outside.servers, "topic": topic}
    writer = rows.write.format("tidemill").mode("append").options(**options)
    with pytest.raises(PySparkException, match=f"topic {topic} has no partition 77; it has 0 to 1"):
        writer.save()
    assert outside.read(topic) == []
    outside.write_values(topic, [1])
    eventually(lambda: outside.values(topic) == [1])  # no transaction is left open that would hide it


@pytest.mark.parametrize(
    ("columns", "options", "line"),
    [
        ("id", {"topic": "a"}, "the rows have no column value; they have id"),
        ("'x' as value", {}, "set the option topic or add a column topic"),
        ("id as value", {"topic": "a"}, "the column value is bigint; it must be string or binary"),
        ("'x' as value, 1 as price", {"topic": "a"}, "column price is not supported"),
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
