"""Rows a second from a topic into Spark, compared with Spark's own kafka connector and a Parquet scan.

python -m benchmarks.spark_source [--only start rates latency partitions] [--sizes 1000] [--codecs zstd] [--full]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import tidemill.spark
from benchmarks import machine
from benchmarks.spark_peers import connector_jars
from tidemill.testing import Broker

CODECS = ("none", "lz4", "zstd")
CORES = 2
ROUNDS = 3
ROWS = {100: 400_000, 1000: 300_000}
"""Rows of each size; with fewer rows the fixed cost of a query dominates."""
PARTITION_COUNTS = (1, 100, 1000)
PARTITIONS_QUICK = 100
"""Above this the connector takes minutes, because it runs one task per partition."""
PARTITION_ROWS = 100_000
MICRO_BATCHES = 25
PARTS = ("start", "rates", "latency", "partitions")
OURS, JVM, PARQUET = "tidemill", "kafka connector", "Parquet scan"


def fill(servers: str, topic: str, total: int, size: int, codec: str = "none", partitions: int = CORES) -> None:
    admin = AdminClient({"bootstrap.servers": servers})  # it must outlive its responses
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)
    settings = {"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 500_000, "compression.type": codec}
    producer = Producer(settings)
    for number in range(total):
        value = f"{number:012} ".encode() * (size // 13 + 1)
        while True:
            try:
                producer.produce(topic, value[:size], key=str(number % 1000), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


class Took(NamedTuple):
    """Seconds by the clock, and of processor in all of Spark's processes. The latter is reliable on a busy machine."""

    seconds: float
    cpu_s: float


def middle(runs: Mapping[str, Callable[[], object]], rounds: int = ROUNDS, warm_ups: int = 1) -> dict[str, Took]:
    """The median of each; they take turns, so that a busy moment of the machine affects all of them.

    The first rounds do not count, because the JVM compiles its code then.
    """
    times: dict[str, list[Took]] = {name: [] for name in runs}
    for _ in range(warm_ups + rounds):
        for name, run in runs.items():
            began, used = time.perf_counter(), cpu_s()
            run()
            times[name].append(Took(time.perf_counter() - began, cpu_s() - used))
    return {name: Took(*map(statistics.median, zip(*found[warm_ups:], strict=True))) for name, found in times.items()}


def cpu_s() -> float:
    """Processor time of the JVM and the Python workers so far, including ended ones, which their parents report."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "java" in process.name() or "pyspark" in " ".join(process.cmdline()):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def noop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


class Bench:
    """A session, a broker, and the names of the sources."""

    def __init__(self, spark: SparkSession, servers: str, *, connector: bool) -> None:
        self.spark = spark
        self.servers = servers
        self.formats = {OURS: "tidemill", JVM: "kafka"} if connector else {OURS: "tidemill"}

    def read(self, name: str, topic: str, schema: str | None = None) -> DataFrame:
        """A new reader each time: Spark plans a DataFrame once."""
        reader = self.spark.read.format(self.formats[name]).option("kafka.bootstrap.servers", self.servers)
        return (reader if schema is None else reader.schema(schema)).option("subscribe", topic).load()

    def whole(self, topic: str) -> dict[str, Callable[[], object]]:
        """Reading all columns of a topic, by each source."""

        def reading(name: str) -> Callable[[], object]:
            return lambda: noop(self.read(name, topic))

        return {name: reading(name) for name in self.formats}

    def rates(self, total: int, size: int, codec: str, folder: Path) -> None:
        topic, lake = f"rows-{size}-{codec}", str(folder / f"rows-{size}-{codec}")
        fill(self.servers, topic, total, size, codec)
        compression = "uncompressed" if codec == "none" else codec
        self.read(OURS, topic).write.option("compression", compression).parquet(lake)
        runs: dict[str, Callable[[], object]] = {PARQUET: lambda: noop(self.spark.read.parquet(lake))}
        runs |= self.whole(topic)
        runs[f"{OURS}, value only"] = lambda: noop(self.read(OURS, topic, "value binary"))
        found = middle(runs)
        print(f"{size:>5} B {codec}")
        for name, took in found.items():
            rate = f"{total / took.seconds:>11,.0f} rows/s {took.cpu_s / total * 1e6:6.2f} cpu s/million"
            print(f"        {name:<22}{rate}{''.join(ratio(found, took, peer) for peer in (PARQUET, JVM))}", flush=True)

    def latency(self, folder: Path) -> None:
        """Two rounds; only the second counts, because the JVM has compiled the shared code by then."""
        topic = "one-by-one"
        fill(self.servers, topic, MICRO_BATCHES, 100, partitions=1)
        for warm in (False, True):
            for name in self.formats:
                batches, took = self._one_by_one(name, topic, folder / f"checkpoint-{name}-{warm}")
                if warm:
                    print(
                        f"micro-batch of one row  {name:<16} p50 {statistics.median(batches):5.0f} ms, best {min(batches):4.0f} ms; "
                        f"{len(batches)} of them and start-up in {took:.1f} s",
                        flush=True,
                    )

    def _one_by_one(self, name: str, topic: str, checkpoint: Path) -> tuple[list[int], float]:
        rows = (
            self.spark.readStream.format(self.formats[name])
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 1)
            .load()
        )
        began = time.perf_counter()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(300)
        took = time.perf_counter() - began
        return [int(each.durationMs["triggerExecution"]) for each in query.recentProgress if each.numInputRows], took

    def partitions(self, counts: tuple[int, ...]) -> None:
        for count in counts:
            topic = f"partitions-{count}"
            fill(self.servers, topic, PARTITION_ROWS, 100, partitions=count)
            slow = count > PARTITIONS_QUICK
            found = middle(self.whole(topic), 1 if slow else ROUNDS, 0 if slow else 1)
            each = ", ".join(f"{name} {took.seconds:6.2f} s, cpu {took.cpu_s:6.2f} s" for name, took in found.items())
            print(
                f"{PARTITION_ROWS:,} rows in {count:>5} partitions: {each}{ratio(found, found[OURS], JVM)}", flush=True
            )


def ratio(found: Mapping[str, Took], took: Took, peer: str) -> str:
    if peer not in found:
        return ""
    other = found[peer]
    return f"; {other.seconds / took.seconds:.2f}x of {peer} (by cpu {other.cpu_s / max(took.cpu_s, 0.01):.2f}x)"


def resident() -> str:
    """Current memory of Spark's processes."""
    found = {"JVM": 0.0, "Python workers": 0.0}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            if "java" in process.name():
                found["JVM"] += process.memory_info().rss / 1e6
            elif "pyspark" in line:
                found["Python workers"] += process.memory_full_info().pss / 1e6
    return ", ".join(f"{name} {size:,.0f} MB" for name, size in found.items())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true")
    options.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options.add_argument("--sizes", nargs="+", type=int, choices=ROWS, default=list(ROWS))
    options.add_argument("--codecs", nargs="+", choices=CODECS, default=CODECS)
    given = options.parse_args()
    machine.head("spark_source")
    jars = connector_jars()
    began = time.perf_counter()
    spark = tidemill.spark.session(f"local[{CORES}]", options={"spark.jars": ",".join(jars)} if jars else {})
    ready = time.perf_counter()
    with Broker(process=True) as broker, tempfile.TemporaryDirectory() as folder:
        bench = Bench(spark, broker.bootstrap_servers, connector=bool(jars))
        if "start" in given.only:
            print(f"session ready after {ready - began:.1f} s")
            fill(broker.bootstrap_servers, "first", 1000, 100)
            for which in ("first", "second"):
                began = time.perf_counter()
                noop(bench.read(OURS, "first"))
                print(f"{which} batch query {time.perf_counter() - began:.1f} s", flush=True)
        if "rates" in given.only:
            for size in given.sizes:
                for codec in given.codecs:
                    bench.rates(ROWS[size] * (5 if given.full else 1), size, codec, Path(folder))
        print(f"memory: {resident()}")
        if "latency" in given.only:
            bench.latency(Path(folder))
        if "partitions" in given.only:
            bench.partitions(PARTITION_COUNTS)
    spark.stop()


if __name__ == "__main__":
    main()
