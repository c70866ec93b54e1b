"""Latency of SQL queries over a topic with many records, in tables and in files.

    python -m benchmarks.clickhouse_sql [--full] [--rows 1000000]

One broker keeps its streams in tables (chDB), another in segment files. Both get the same records and, over HTTP, the
same queries. Each query runs several times. Prints the first time, the median, and the ratio of files to tables. With
segment files, every query reads the files again.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from benchmarks import machine
from benchmarks.clickhouse_streams import TOPIC, produce
from tidemill.testing import Broker

PORTION = 500_000
ASKED = 5
SLOW_S = 5.0
"""A query that takes longer than this runs only twice."""
QUESTIONS = {
    "count by partition": "SELECT topic, partition, count(), max(offset) FROM messages GROUP BY ALL",
    "one key's records": "SELECT count() FROM messages WHERE topic = 'orders' AND key = 'customer-77'",
    "records per minute": "SELECT toStartOfMinute(timestamp) AS m, count() FROM messages WHERE topic = 'orders' GROUP BY m ORDER BY m",
    "sum over JSON values": "SELECT JSONExtractString(value, 'country') AS country, sum(JSONExtractInt(value, 'total_cents')) FROM messages WHERE topic = 'orders' GROUP BY country",
    "hundred records by offset": "SELECT offset, key, value FROM messages WHERE topic = 'orders' AND partition = 0 AND offset >= {middle} ORDER BY offset LIMIT 100",
    "newer than a second": "SELECT count() FROM messages WHERE timestamp > now() - INTERVAL 1 SECOND",
    "consumer_lag": "SELECT * FROM consumer_lag ORDER BY lag DESC LIMIT 10",
    "topic_rates": "SELECT * FROM topic_rates ORDER BY minute DESC LIMIT 10",
}
SETTINGS = {"tidemill.sql.timeout.ms": "600000"}
FLAGS = {"chdb": "chdb:?fsync=false", "segments": "segments:"}


def ask(broker: Broker, question: str) -> float:
    """Seconds from the query to its result."""
    body = json.dumps({"query": question}).encode()
    request = urllib.request.Request(
        f"{broker.http}/api/v1/sql", data=body, headers={"content-type": "application/json"}
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=600) as answer:
        answer.read()
    return time.perf_counter() - began


def measure(streams: str, rows: int) -> dict[str, tuple[float, float]]:
    """For each query, the first and the median time in seconds."""
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    found = {}
    try:
        flags = {"streams": streams, "grpc": "none"}
        with Broker(process=True, data_dir=folder, flags=flags, settings=SETTINGS) as broker:
            took = sum(produce(broker.bootstrap_servers, PORTION, "lz4") for _ in range(0, rows, PORTION))
            print(f"{streams}: {rows:,} records produced in {took:.1f} s", flush=True)
            commit(broker, rows // 2)
            for name, question in QUESTIONS.items():
                asked = question.replace("{middle}", str(rows // 2))
                times = [ask(broker, asked), ask(broker, asked)]
                while len(times) < ASKED and times[-1] < SLOW_S:
                    times.append(ask(broker, asked))
                found[name] = (times[0], statistics.median(times))
            resident = psutil.Process(broker._runner.pid).memory_info().rss / 1e6  # type: ignore[union-attr]
            print(f"{streams}: {resident:,.0f} MB resident after all questions", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def commit(broker: Broker, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "half"})
    reader.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    reader.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="ten million records")
    options.add_argument("--rows", type=int, default=1_000_000)
    chosen = options.parse_args()
    rows = 10_000_000 if chosen.full else chosen.rows
    machine.head("clickhouse_sql")
    figures = {name: measure(streams, rows) for name, streams in FLAGS.items()}
    for name in QUESTIONS:
        (first, median), (_, files) = figures["chdb"][name], figures["segments"][name]
        print(
            f"{name:26} chdb first {1000 * first:8.1f} ms, median {1000 * median:8.1f} ms; "
            f"segments median {1000 * files:9.1f} ms, {files / median:6.1f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
