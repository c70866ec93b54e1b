"""Drivers that are killed in the middle of their work, with SIGKILL, and come back with another number of tasks.

TIDEMILL_KILLS=20 kills more of them than the two that every run of the tests has time for. The steps of the protocol
are killed one by one, without Spark, in tests/integration/test_pipeline_sink.py.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.copying import Copy
from tests.spark.reading import committed
from tests.spark.topics import LIMIT_S, Outside

from tidemill.testing import Broker

KILLS = int(os.environ.get("TIDEMILL_KILLS", "2"))
ROWS = 400 * KILLS
ROWS_PER_BATCH = 20
START_LIMIT_S = 300
PARTITIONS = 2
SOON_S, LATE_S = 1.5, 8.0
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(240 + 360 * KILLS)


def last(checkpoint: Path, log: str) -> int:
    """The last micro-batch in one of Spark's logs: `offsets` when it is planned, `commits` when it is done."""
    folder = checkpoint / log
    names = [file.name for file in folder.iterdir()] if folder.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def kill_one(copy: Copy, batches: int, after_s: float, said: Path) -> None:
    """Start a driver and kill it when it has done so many micro-batches and is so long in the next one."""
    ready = copy.checkpoint.with_name("ready")
    ready.unlink(missing_ok=True)
    done = last(copy.checkpoint, "commits") + batches
    command = [sys.executable, "-m", "tests.spark.copying", *(str(part) for part in copy)]
    with (
        said.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, start_new_session=True) as driver,
    ):
        deadline = time.monotonic() + START_LIMIT_S
        try:
            while not (ready.exists() and last(copy.checkpoint, "offsets") > done <= last(copy.checkpoint, "commits")):
                assert driver.poll() is None, said.read_text()
                assert time.monotonic() < deadline, f"no micro-batch in {START_LIMIT_S} s: {said.read_text()}"
                time.sleep(0.02)
            time.sleep(after_s)
            assert driver.poll() is None, f"it came to the end of the topic: {said.read_text()}"
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


def test_killed_drivers_neither_lose_nor_double(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    outside = Outside(broker.bootstrap_servers)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    source, target = outside.create("killed-in"), outside.create("killed-out", PARTITIONS)
    outside.write(source, ({"key": str(n), "value": str(n)} for n in range(ROWS)))
    copy = Copy(broker.bootstrap_servers, source, target, tmp_path / "checkpoint", 0, ROWS_PER_BATCH)
    for number in range(KILLS):
        batches, tasks = number % 3, draw.randrange(1, 6)
        after_s = draw.random() * (SOON_S if batches else LATE_S)  # the first micro-batch of a driver takes its time
        kill_one(copy._replace(tasks=tasks), batches, after_s, tmp_path / "said")
        done = last(copy.checkpoint, "commits")
        print(f"kill {number + 1}: after {batches} micro-batches and {after_s:.3f} s, {tasks} tasks; {done} is done")
    query = copy._replace(tasks=3, rows=ROWS).start(spark)
    try:
        assert query.awaitTermination(LIMIT_S)
    finally:
        query.stop()
    found = asyncio.run(committed(broker.bootstrap_servers, target, PARTITIONS))
    assert sorted(found) == sorted(f"<{n}>" for n in range(ROWS))
