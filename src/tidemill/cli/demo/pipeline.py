"""The Spark pipeline of the demo, a separate program: orders -> revenue per minute and item -> topic and Parquet.

`python -m tidemill.cli.demo.pipeline SERVERS FOLDER`. Spark runs in its own process, because the JVM and its Python use
seconds of a core while they start, which would delay the broker's timelines. It reports its progress in JSON lines on
standard output. When standard input ends (the demo stops it, or has ended), it processes the rest of the topic, stops
Spark and ends.

The totals of a minute and an item only grow and have one key, so a micro-batch that runs twice changes nothing. Readers
take the newest record of a key, or the largest row of a minute and item in the Parquet folder.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ORDERS, REVENUE = "orders", "revenue"
GROUP = "revenue"
LAKE = "revenue"
TRIGGER = "2 seconds"
LATE = "10 minutes"
POLL_S = 0.5
DRAIN_S = 60.0
"""Used only when the demo has ended. Otherwise the demo stops this process after its own timeout."""
SCHEMA = "id BIGINT, item STRING, price DOUBLE, quantity INT, customer STRING, at TIMESTAMP"
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dderby.system.home={folder}"

Report = Callable[..., None]


def main() -> None:
    """Run until standard input ends."""
    servers, folder = sys.argv[1], Path(sys.argv[2])
    report = _channel()
    stopping = threading.Event()
    threading.Thread(target=_wait_for_end, args=(stopping,), daemon=True).start()
    try:
        spark = _session(folder)
        if stopping.is_set():
            return
        _show_in_console(spark, servers)
        query = _start(spark, servers, folder)
    except Exception as error:  # noqa: BLE001 - the demo continues without Spark after any error
        report(state="unavailable", reason=_line(error))
        return
    report(state="running")
    try:
        drained = _follow(query, stopping, report)
        report(state="finished" if drained else "stopped")
    except Exception as error:  # noqa: BLE001 - as above
        report(state="failed", reason=_line(error))
    spark.stop()


def _channel() -> Report:
    """A writer of JSON lines to standard output. The output of Spark and Java goes to standard error instead."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(**facts: object) -> None:
        out.write(json.dumps(facts) + "\n")
        out.flush()

    return report


def _wait_for_end(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


def _session(folder: Path) -> Any:
    from tidemill.pipelines.spark.session import session

    options = {
        "spark.driver.extraJavaOptions": JAVA.format(folder=folder),
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "spark-local"),
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.sql.shuffle.partitions": "1",  # a few rows a minute: more tasks would only start more Python processes
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    return session(name="tidemill demo", options=options)


def _show_in_console(spark: Any, servers: str) -> None:
    from tidemill.pipelines.spark.report_listener import report

    report(spark, servers, name="demo")


def _start(spark: Any, servers: str, folder: Path) -> Any:
    """Start the query. The totals that changed in a micro-batch go to the topic and to a folder of the micro-batch."""
    source = {
        "kafka.bootstrap.servers": servers,
        "subscribe": ORDERS,
        "kafka.group.id": GROUP,
        "startingOffsets": "earliest",
    }
    orders = (
        spark.readStream.format("tidemill")
        .options(**source)
        .schema("value BINARY")
        .load()
        .selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS placed")
        .select("placed.*")
        .withWatermark("at", LATE)
    )
    orders.createOrReplaceTempView("orders")
    totals = spark.sql(
        "SELECT window.start AS minute, item, count(*) AS orders, sum(quantity) AS pieces,"
        " round(sum(price * quantity), 2) AS revenue FROM orders GROUP BY window(at, '1 minute'), item"
    )

    def write(batch: Any, number: int) -> None:
        batch.persist()
        rows = batch.coalesce(1)
        rows.write.mode("overwrite").parquet(str(folder / LAKE / f"batch={number}"))
        records = rows.selectExpr(
            "concat(date_format(minute, 'yyyy-MM-dd HH:mm'), ' ', item) AS key",
            "to_json(struct(minute, item, orders, pieces, revenue)) AS value",
        )
        sink = {"kafka.bootstrap.servers": servers, "topic": REVENUE}
        records.write.format("tidemill").options(**sink).mode("append").save()
        batch.unpersist()

    checkpoint = str(folder / "spark-checkpoint")
    started = totals.writeStream.outputMode("update").trigger(processingTime=TRIGGER).foreachBatch(write)
    return started.option("checkpointLocation", checkpoint).queryName("revenue").start()


def _follow(query: Any, stopping: threading.Event, report: Report) -> bool:
    """Report every micro-batch. At the end process the rest and stop. Returns whether nothing is left."""
    seen = -1
    while not stopping.wait(POLL_S):
        seen = _report_batches(query, seen, report)
        if not query.isActive:
            raise query.exception() or RuntimeError("the query has ended")
    drain = threading.Thread(target=query.processAllAvailable, daemon=True)
    drain.start()
    drain.join(DRAIN_S)
    drained = query.isActive and not drain.is_alive()
    _report_batches(query, seen, report)
    query.stop()
    return drained


def _report_batches(query: Any, seen: int, report: Report) -> int:
    for progress in query.recentProgress:
        if progress["batchId"] > seen and progress["numInputRows"]:
            seen = progress["batchId"]
            took_ms = progress["durationMs"].get("triggerExecution", 0)
            report(batch=seen, rows=progress["numInputRows"], took_ms=took_ms)
    return seen


def _line(error: BaseException) -> str:
    """The first line of an exception's text. Spark's texts have dozens."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed; pip install 'tidemill[spark]'"
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


if __name__ == "__main__":
    main()
