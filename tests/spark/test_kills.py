"""Drivers that are killed in the middle of their work, with SIGKILL, and come back with another number of tasks.

Starting a driver is what takes the time, so each one runs several queries, and a kill hits every one of them somewhere
else: this makes twenty kills in the middle of a micro-batch from a few drivers. TIDEMILL_KILLS=100 asks for more. The
steps of the protocol are killed one by one, without Spark, in tests/integration/test_pipeline_sink.py.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.spark.copying import READY, Copy
from tests.spark.reading import committed
from tests.spark.topics import LIMIT_S, Outside

from tidemill.testing import Broker

KILLS = int(os.environ.get("TIDEMILL_KILLS", "20"))
QUERIES = 5
DRIVERS_MAX = 2 * -(-KILLS // QUERIES)
"""A query that is between two micro-batches does not count as killed in one."""
ROWS_PER_BATCH = 10
ROWS = 150 * DRIVERS_MAX
START_LIMIT_S = 300
PARTITIONS = 2
DELAY_S = 1.0
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(240 + 60 * DRIVERS_MAX)


class Progress(NamedTuple):
    """Spark's notes of a query: the last micro-batch that it planned, and the last that is done."""

    planned: int
    done: int

    @classmethod
    def of(cls, checkpoint: Path) -> "Progress":
        def last(log: str) -> int:
            folder = checkpoint / log
            names = [file.name for file in folder.iterdir()] if folder.exists() else []
            return max((int(name) for name in names if name.isdecimal()), default=-1)

        return cls(last("offsets"), last("commits"))

    def is_in_a_batch_since(self, before: "Progress") -> bool:
        return self.planned > self.done and self.planned > before.planned


class Driver:
    """One driver after the other, on the same checkpoints."""

    def __init__(self, servers: str, source: str, folder: Path, targets: list[str]) -> None:
        self._command = [sys.executable, "-m", "tests.spark.copying", servers, source, str(folder), str(ROWS_PER_BATCH)]
        self._folder = folder
        self._targets = targets

    def progress(self) -> list[Progress]:
        return [Progress.of(self._folder / target) for target in self._targets]

    def kill_one(self, tasks: list[int], batches: int, after_s: float) -> int:
        """Let every query do what was left and so many more, wait, kill; how many were in the middle of one."""
        said, ready = self._folder / "said", self._folder / READY
        ready.unlink(missing_ok=True)
        before = self.progress()
        words = [f"{target}:{count}" for target, count in zip(self._targets, tasks, strict=True)]
        with (
            said.open("w") as out,
            subprocess.Popen([*self._command, *words], stdout=out, stderr=out, cwd=ROOT, start_new_session=True) as run,
        ):
            deadline = time.monotonic() + START_LIMIT_S
            try:
                while not (ready.exists() and self._went_on(before, batches)):
                    assert run.poll() is None, said.read_text()
                    assert time.monotonic() < deadline, f"no micro-batch in {START_LIMIT_S} s: {said.read_text()}"
                    time.sleep(0.02)
                time.sleep(after_s)
                assert run.poll() is None, f"it came to the end of the topic: {said.read_text()}"
            finally:
                os.killpg(run.pid, signal.SIGKILL)
        pairs = zip(before, self.progress(), strict=True)
        return sum(now.is_in_a_batch_since(old) for old, now in pairs)

    def _went_on(self, before: list[Progress], batches: int) -> bool:
        return all(now.planned > old.planned + batches for old, now in zip(before, self.progress(), strict=True))


def test_killed_drivers_neither_lose_nor_double(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    outside = Outside(broker.bootstrap_servers)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    source = outside.create("killed-in")
    targets = [outside.create(f"killed-out-{number}", PARTITIONS) for number in range(QUERIES)]
    outside.write(source, ({"key": str(n), "value": str(n)} for n in range(ROWS)))
    driver = Driver(broker.bootstrap_servers, source, tmp_path, targets)
    killed = 0
    for number in range(DRIVERS_MAX):
        tasks, batches = [draw.randrange(1, 4) for _ in targets], draw.randrange(2)
        after_s = draw.random() * DELAY_S
        killed += driver.kill_one(tasks, batches, after_s)
        print(f"driver {number + 1}: after {batches} micro-batches and {after_s:.3f} s, tasks {tasks}; {killed} kills")
        if killed >= KILLS:
            break
    assert killed >= KILLS
    for target in targets:
        query = Copy(broker.bootstrap_servers, source, target, tmp_path / target, 3, ROWS).start(spark)
        try:
            assert query.awaitTermination(LIMIT_S)
        finally:
            query.stop()
        found = asyncio.run(committed(broker.bootstrap_servers, target, PARTITIONS))
        assert sorted(found) == sorted(f"<{n}>" for n in range(ROWS))
