"""SQL over a topic of many records in tables: the latency of an analyst's questions, with the engine of one broker.

    python -m benchmarks.clickhouse_sql [--full] [--rows 10000000]

Rows are made by the engine itself, in the shape and order in which the broker writes them, so that the table is the
broker's own. Each question is asked several times; the first answer (cold) and the median are told.
"""

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from tidemill.streams.clickhouse import Engine, parse

ASKED = 7
BLOCK_ROWS = 1_000_000
QUESTIONS = {
    "count by partition": "SELECT topic, partition, count(), max(offset) FROM messages GROUP BY ALL",
    "one key's records": "SELECT count() FROM messages WHERE topic = 'orders' AND key = 'customer-77'",
    "records per minute": "SELECT toStartOfMinute(timestamp) AS m, count() FROM messages WHERE topic = 'orders' "
    "GROUP BY m ORDER BY m",
    "sum over JSON values": "SELECT JSONExtractString(value, 'country') AS country, "
    "sum(JSONExtractInt(value, 'total')) FROM messages WHERE topic = 'orders' GROUP BY country",
    "hundred records by offset": "SELECT offset, key, value FROM messages WHERE topic = 'orders' AND partition = 3 "
    "AND offset >= {middle} ORDER BY offset LIMIT 100",
    "consumer_lag": "SELECT * FROM consumer_lag ORDER BY lag DESC LIMIT 10",
    "topic_rates": "SELECT * FROM topic_rates ORDER BY minute DESC LIMIT 10",
}
_ROWS = """INSERT INTO messages (topic, partition, offset, timestamp, key, value, mark, leader_epoch, producer_id,
    producer_epoch, sequence, batch_offset, batch_last, batch_attributes, batch_timestamp, batch_max_timestamp,
    batch_records, batch_bytes, appended_at, expires_at)
SELECT 'orders', number % 8, intDiv(number, 8), now64(3) - (10000000 - number) / 1000, 'customer-' || (number % 5000),
    '{{"order":' || number || ',"country":"' || ['de','fr','it','es'][number % 4 + 1] || '","total":' || (number % 9973) || '}}',
    'record', 0, -1, -1, -1, intDiv(intDiv(number, 8), 500) * 500, intDiv(intDiv(number, 8), 500) * 500 + 499, 0, 0, 0,
    500, 40000, now64(3), toDateTime(4294967295)
FROM numbers({0}, {1})"""


async def run(rows: int) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    engine = Engine(parse("chdb:", folder))
    try:
        began = time.perf_counter()
        for first in range(0, rows, BLOCK_ROWS):
            await engine.command(_ROWS.format(first, min(BLOCK_ROWS, rows - first)))
        print(f"{rows:,} rows made in {time.perf_counter() - began:.1f} s")
        await engine.command(
            "INSERT INTO consumer_offsets (group_id, topic, partition, offset) "
            f"SELECT 'g' || intDiv(number, 8), 'orders', number % 8, {rows // 16} FROM numbers(40)"
        )
        for name, question in QUESTIONS.items():
            times = []
            for _ in range(ASKED):
                began = time.perf_counter()
                await engine.query(question.replace("{middle}", str(rows // 16)))
                times.append(1000 * (time.perf_counter() - began))
            print(f"{name:26} first {times[0]:8.1f} ms, median {statistics.median(times):8.1f} ms", flush=True)
    finally:
        await engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="ten million rows")
    options.add_argument("--rows", type=int, default=1_000_000)
    chosen = options.parse_args()
    machine.head("clickhouse_sql")
    asyncio.run(run(10_000_000 if chosen.full else chosen.rows))


if __name__ == "__main__":
    main()
