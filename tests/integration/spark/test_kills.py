"""Drivers that are killed in the middle of a micro-batch, each with its JVM, with SIGKILL; the next driver continues.

Two rows of drivers work side by side, one on a topic and one on a lake. The next driver of each row has its session
ready before the one at work is killed. Starting a JVM is what takes the time, so the first driver leaves its loaded
classes to the others. TIDEMILL_KILLS=100 asks for more kills than twenty. The steps of the protocol are killed one by
one, without Spark, in tests/integration/test_pipeline_sink.py.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.parquet as pq
import pytest
from tests.integration.spark.copying import READY, Progress
from tests.integration.spark.reading import committed
from tests.integration.spark.topics import Outside

from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.interface import CHECKPOINT
from tidemill.pipelines.lake.opening import open_lake
from tidemill.testing import Broker

KILLS = int(os.environ.get("TIDEMILL_KILLS", "20"))
TURNS_MAX = KILLS
"""Of each row, which has to do half of the kills: one that falls between two micro-batches does not count."""
ROWS_PER_BATCH = 10
ROWS = 60 * TURNS_MAX
PARTITIONS = 2
FIRST_S, LATER_S = 2.0, 0.4
"""A kill comes at most so long after a micro-batch began; the first one of a driver is slow."""
END_S = 120
LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xlog:disable"
ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.timeout(120 + 20 * KILLS), pytest.mark.long]


class Turn(NamedTuple):
    """How a driver works and when it dies."""

    tasks: int
    batches: int
    after_s: float

    @classmethod
    def drawn(cls, draw: random.Random) -> "Turn":
        batches = draw.choice((1, 1, 2))
        return cls(draw.randrange(1, 4), batches, draw.random() * (FIRST_S, LATER_S)[batches - 1])


class Driver:
    """A driver process and its JVM."""

    def __init__(self, command: list[str], checkpoint: Path, said: Path) -> None:
        self._checkpoint = checkpoint
        self._said = said
        with said.open("a") as noise:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark.copying", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )

    def begin(self, rows: int) -> None:
        """Let it take over, as soon as its session is there."""
        assert self._line() == READY
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows}\n")
        self._process.stdin.flush()

    def works(self, batches: int) -> int:
        """Wait until it works on so many micro-batches more; the number of the last."""
        return [int(self._line()) for _ in range(batches)][-1]

    def is_killed_in(self, batch: int) -> bool:
        """Kill it; whether that was in the middle of a micro-batch, this one or a later one."""
        assert self._process.poll() is None, f"it came to the end of the topic: {self._said.read_text()}"
        self.close()
        planned, done = Progress.of(self._checkpoint)
        return planned >= batch and planned > done

    def end(self) -> None:
        """Let it come to the end of the topic."""
        self._process.communicate(timeout=END_S)
        assert self._process.returncode == 0, self._said.read_text()

    def leave_classes(self, path: Path) -> None:
        """Write down which classes its JVM has loaded, where Java can: others then start in half the time."""
        javas = [each.pid for each in psutil.Process(self._process.pid).children() if "java" in each.name()]
        if jcmd := shutil.which("jcmd"):
            command = [jcmd, str(javas[0]), "VM.cds", "dynamic_dump", str(path)]
            subprocess.run(command, capture_output=True, check=False, timeout=END_S)

    def close(self) -> None:
        """Nothing of it stays."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"it ended: {self._said.read_text()}"
        return line.strip()


class Row(NamedTuple):
    """The drivers of one query, one after the other on the same checkpoint."""

    kind: str
    words: tuple[str, ...]
    checkpoint: Path
    said: Path
    draw: random.Random

    def start(self, turn: Turn, java: str) -> Driver:
        """A driver that waits for its turn."""
        command = [self.kind, *self.words, str(self.checkpoint), str(turn.tasks), java]
        return Driver(command, self.checkpoint, self.said)

    def kill(self, kills: int, java: str) -> None:
        """Kill drivers until so many were hit in a micro-batch, then let one come to the end."""
        turns = [Turn.drawn(self.draw) for _ in range(TURNS_MAX + 1)]
        hit = 0
        with ExitStack() as started:

            def start(turn: Turn) -> Driver:
                return started.enter_context(closing(self.start(turn, java)))

            waiting = start(turns[0])
            for number, (turn, following) in enumerate(pairwise(turns)):
                driver, waiting = waiting, start(following)
                driver.begin(ROWS_PER_BATCH)
                batch = driver.works(turn.batches)
                time.sleep(turn.after_s)
                hit += driver.is_killed_in(batch)
                when = f"{turn.after_s:.3f} s into micro-batch {batch} of {turn.tasks} tasks"
                print(f"{self.kind}, driver {number}: killed {when}; {hit} hit so far")
                if hit >= kills:
                    break
            assert hit >= kills
            waiting.begin(ROWS)
            waiting.end()


def leave_classes(row: Row, path: Path) -> str:
    """Options that let Java start quickly. A first driver is stopped for them in the middle of its work."""
    with closing(row.start(Turn(2, 1, 0), f"{LEAN} -XX:+RecordDynamicDumpInfo")) as driver:
        driver.begin(ROWS_PER_BATCH)
        driver.works(2)
        driver.leave_classes(path)
    return f"{LEAN} -XX:SharedArchiveFile={path}" if path.exists() else LEAN


async def test_killed_drivers_neither_lose_nor_double(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    outside = Outside(servers)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    source, target = outside.create("killed-in"), outside.create("killed-out", PARTITIONS)
    outside.write(source, ({"key": str(n), "value": str(n)} for n in range(ROWS)))
    lake = open_lake(tmp_path / source)
    words, said = (servers, source, target), tmp_path / "said"
    to_topic = Row("topic", words, tmp_path / "checkpoint", said, random.Random(seed))
    words = (servers, source, str(lake.root))
    to_lake = Row("lake", words, lake.root / CHECKPOINT, said, random.Random(seed + 1))
    print("begin")
    java = leave_classes(to_topic, tmp_path / "classes.jsa")
    with ThreadPoolExecutor(2) as rows:
        halves = [(to_topic, KILLS - KILLS // 2), (to_lake, KILLS // 2)]
        for done in [rows.submit(row.kill, kills, java) for row, kills in halves]:
            done.result()
    found = await committed(servers, target, PARTITIONS)
    assert sorted(found) == sorted(f"<{n}>" for n in range(ROWS))
    assert audit(lake).contiguous
    assert sorted(map(int, pq.read_table(lake.root)["value"].to_pylist())) == list(range(ROWS))
