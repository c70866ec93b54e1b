"""Rows a second from Spark into a topic, compared with Spark's own kafka sink and a Parquet write of the same rows.

python -m benchmarks.spark_sink [--only batch streaming] [--sizes 1000] [--codecs zstd] [--full]

All write the same cached rows. Spark's sink has no transactions; ours has them. Zstandard's level is 1 in ours and 3 in
Spark's sink by default, so the latter is measured with both. Processor time is that of Spark's processes; the broker's
is not included and is about the same for both. A Python sink that drops its rows is the limit of every sink in Python:
it measures what Spark needs to pass rows to Python.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import tidemill.spark
from benchmarks import machine
from benchmarks.spark_peers import connector_jars
from benchmarks.spark_source import CODECS, CORES, middle, ratio
from tidemill.testing import Broker

PARTS = ("batch", "streaming")
OURS, IDEMPOTENT, JVM, PARQUET = "tidemill", "tidemill, no transactions", "kafka connector", "Parquet write"
UNCOUNTED, DROPPED, QUICK_JVM = "tidemill, small rows", "dropped in Python", "kafka connector, level 1"
SMALL_ROWS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
"""The settings of docs/guides/spark.md for rows that are known to be small."""
STREAM_BATCHES = 10
ROWS = {100: 2_000_000, 1000: 500_000}
"""Rows of each size; with fewer rows the fixed cost of a query dominates."""
MEMORY = "4g"
"""The cached rows must stay in memory."""


class _DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[object]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class DroppingSink(DataSource):
    """Drops its rows."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def schema(self) -> str:
        return "key string, value binary"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 - Spark's
        return _DroppingWriter()


class Bench:
    """A session, a broker, and topics that are new for each run."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, *, connector: bool) -> None:
        self.spark = spark
        self.servers = servers
        self.folder = folder
        self.connector = connector
        spark.dataSource.register(DroppingSink)
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._numbers = count()

    def topic(self) -> str:
        name = f"written-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, CORES)])[name].result(60)
        return name

    def rows(self, total: int, size: int) -> DataFrame:
        """Distinct rows, cached before the measurement."""
        value = f"rpad(concat(lpad(id, 12, '0'), ' ', uuid()), {size}, concat(lpad(id, 12, '0'), ' '))"
        rows = self.spark.range(0, total, 1, CORES).selectExpr(
            "cast(id % 1000 as string) as key", f"cast({value} as binary) as value"
        )
        rows.cache().count()
        return rows

    def writing(self, rows: DataFrame, name: str, codec: str) -> Callable[[], object]:
        options = {"kafka.bootstrap.servers": self.servers, "kafka.compression.type": codec}
        if name in {JVM, QUICK_JVM}:  # as many bytes to a batch as ours
            options |= {"kafka.batch.size": "1000000", "kafka.linger.ms": "20", "kafka.acks": "all"}
        if name == QUICK_JVM:
            options["kafka.compression.zstd.level"] = "1"
        if name == IDEMPOTENT:
            options["transactional"] = "false"
        kind = {JVM: "kafka", QUICK_JVM: "kafka", DROPPED: "dropping"}.get(name, "tidemill")
        settings = SMALL_ROWS if name == UNCOUNTED else {}

        def write() -> None:
            with self._set(settings):
                rows.write.format(kind).mode("append").options(**options, topic=self.topic()).save()

        return write

    @contextmanager
    def _set(self, settings: dict[str, str]) -> Iterator[None]:
        """Change settings of the session within the block."""
        before = {name: str(self.spark.conf.get(name)) for name in settings}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        yield
        for name, value in before.items():
            self.spark.conf.set(name, value)

    def batch(self, rows: DataFrame, total: int, size: int, codec: str) -> None:
        compression = "uncompressed" if codec == "none" else codec
        runs: dict[str, Callable[[], object]] = {
            PARQUET: lambda: rows.write.option("compression", compression).parquet(str(self.folder / uuid4().hex))
        }
        peers = [JVM, QUICK_JVM] if codec == "zstd" else [JVM]
        for name in (DROPPED, OURS, UNCOUNTED, *(peers if self.connector else [])):
            runs[name] = self.writing(rows, name, codec)
        found = middle(runs)
        print(f"{size:>5} B {codec}")
        for name, took in found.items():
            ratios = "".join(ratio(found, took, peer) for peer in (PARQUET, JVM))
            rate = f"{total / took.seconds:>12,.0f} rows/s {took.cpu_s / total * 1e6:6.2f} cpu s/million"
            print(f"        {name:<26}{rate}{ratios}", flush=True)

    def streaming(self) -> None:
        """The cost of exactly once for a small micro-batch."""
        source = self.topic()
        rows = self.spark.range(STREAM_BATCHES * CORES).selectExpr("cast(id as string) as value", f"id % {CORES} as p")
        options = {"kafka.bootstrap.servers": self.servers, "topic": source}
        rows = rows.selectExpr("value", "cast(p as int) as partition")
        rows.write.format("tidemill").mode("append").options(**options).save()
        names = (OURS, IDEMPOTENT, JVM) if self.connector else (OURS, IDEMPOTENT)
        for warm in (False, True):  # only the second run counts: the JVM has compiled the shared code by then
            for name in names:
                took = sorted(self._stream(source, name))
                if warm:
                    print(f"micro-batch of {CORES} rows  {name:<26} p50 {took[len(took) // 2]:5.0f} ms", flush=True)

    def _stream(self, source: str, name: str) -> list[int]:
        rows = (
            self.spark.readStream.format("tidemill")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(CORES))
            .load()
        )
        options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic()}
        options["checkpointLocation"] = str(self.folder / uuid4().hex)
        if name == IDEMPOTENT:
            options["transactional"] = "false"
        writer = rows.select("value").writeStream.format("kafka" if name == JVM else "tidemill").options(**options)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(300)
        return [int(each.durationMs["triggerExecution"]) for each in query.recentProgress if each.numInputRows]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true")
    options.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options.add_argument("--sizes", nargs="+", type=int, choices=ROWS, default=list(ROWS))
    options.add_argument("--codecs", nargs="+", choices=CODECS, default=CODECS)
    given = options.parse_args()
    machine.head("spark_sink")
    jars = connector_jars()
    began = time.perf_counter()
    settings = {"spark.driver.memory": MEMORY, **({"spark.jars": ",".join(jars)} if jars else {})}
    spark = tidemill.spark.session(f"local[{CORES}]", options=settings)
    print(f"session ready after {time.perf_counter() - began:.1f} s", flush=True)
    with Broker(process=True) as broker, tempfile.TemporaryDirectory() as folder:
        bench = Bench(spark, broker.bootstrap_servers, Path(folder), connector=bool(jars))
        if "batch" in given.only:
            for size in given.sizes:
                total = ROWS[size] * (3 if given.full else 1)
                rows = bench.rows(total, size)
                for codec in given.codecs:
                    bench.batch(rows, total, size, codec)
                rows.unpersist()
        if "streaming" in given.only:
            bench.streaming()
    spark.stop()


if __name__ == "__main__":
    main()
