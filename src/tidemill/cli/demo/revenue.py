"""The Spark pipeline from the demo's side: a child process that reports its progress, and its output topic.

The child leads a process group (`start_new_session`), so that Ctrl-C at the terminal reaches only the demo. The demo
stops the child by closing its standard input. At the end the whole group is killed in every case, so that no JVM is
left.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from tidemill.cli.demo.orders import QUIET
from tidemill.cli.demo.pipeline import REVENUE

STARTING, RUNNING, UNAVAILABLE, FAILED = "starting", "running", "unavailable", "failed"
FINISHED, STOPPED = "finished", "stopped"
"""It ended after all orders were processed, or before."""
LOG = "spark.log"
POLL_S = 0.1
MESSAGES_MAX = 10_000
RECOUNT_S = 30.0
KERNELS = {"TIDEMILL_KERNELS": "python"}
"""A few hundred records per second need no compiled kernels, and the demo should not wait for the compiler."""


class Pipeline:
    """The child process."""

    def __init__(self, servers: str, folder: Path) -> None:
        self.state = STARTING
        self.reason = ""
        self.batches = 0
        self.rows = 0
        self.took_ms = 0
        self._stopping = False
        command = [sys.executable, "-m", "tidemill.cli.demo.pipeline", servers, str(folder)]
        with (folder / LOG).open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env={**KERNELS, **os.environ},
            )
        self._reader = threading.Thread(target=self._read, name="demo-pipeline", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its session and group."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, or never started."""
        return self.state in {UNAVAILABLE, FAILED}

    def stop(self, patience_s: float, hurry: threading.Event, *, whole: bool = False) -> None:
        """Let it process the rest and end. Kill it after `patience_s`, or when `hurry` is set.

        A pipeline that is still starting has processed nothing. It is awaited only when the `whole` result is wanted.
        """
        if self._stopping:
            return
        deadline = time.monotonic() + patience_s
        while whole and self.state == STARTING and time.monotonic() < deadline and not hurry.is_set():
            self._reader.join(POLL_S)
        self._stopping = True
        if self.state == RUNNING and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            while self._reader.is_alive() and time.monotonic() < deadline and not hurry.is_set():
                self._reader.join(POLL_S)
        with contextlib.suppress(ProcessLookupError):  # not reaped yet, so the process id is still valid
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            self._take(json.loads(line))
        if self._stopping:
            self.state = self.state if self.state == FINISHED else STOPPED
        elif self.state in {STARTING, RUNNING}:
            self.state, self.reason = FAILED, f"it ended without a report; see {LOG}"

    def _take(self, event: Mapping[str, Any]) -> None:
        if "batch" in event:
            self.batches += 1
            self.rows += event["rows"]
            self.took_ms = event["took_ms"]
        else:
            self.reason = event.get("reason", "")
            self.state = event["state"]


class Totals:
    """The totals in the output topic: the newest record of a minute and an item."""

    def __init__(self, servers: str) -> None:
        options = {
            "bootstrap.servers": servers,
            "group.id": "demo-screen",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": QUIET,
        }
        self._consumer = Consumer(options)
        self._rows: dict[bytes, Mapping[str, Any]] = {}
        self._from_beginning()

    @property
    def orders(self) -> int:
        """The number of aggregated orders."""
        return sum(row["orders"] for row in self._rows.values())

    @property
    def by_item(self) -> dict[str, float]:
        """Revenue by item, highest first."""
        sums: dict[str, float] = {}
        for row in self._rows.values():
            sums[row["item"]] = round(sums.get(row["item"], 0.0) + row["revenue"], 2)
        return dict(sorted(sums.items(), key=lambda pair: -pair[1]))

    def take(self) -> None:
        """Read the records that have arrived."""
        for message in self._consumer.consume(MESSAGES_MAX, 0):
            self._take(message)

    def recount(self) -> bool:
        """Read the topic again from beginning to end. Returns whether the end was reached in time."""
        self._from_beginning()
        deadline = time.monotonic() + RECOUNT_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(POLL_S)
            if message is not None and self._take(message):
                return True
        return False

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _from_beginning(self) -> None:
        self._rows = {}
        self._consumer.assign([TopicPartition(REVENUE, 0, OFFSET_BEGINNING)])

    def _take(self, message: Message) -> bool:
        """Add a record. Returns whether the end of the topic was reached."""
        error = message.error()
        if error is not None:
            return bool(error.code() == KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name
        self._rows[message.key()] = json.loads(message.value())
        return False
