"""`tidemill consume --exec COMMAND`: runs a shell command for each record with the parallel consumer.

The value is the command's standard input. The other fields are in its environment (`TIDEMILL_TOPIC`, `_PARTITION`,
`_OFFSET`, `_KEY`, `_KEY_HEX`, `_TIMESTAMP`, `_ATTEMPT`). Its output is printed when it ends, so that lines of parallel
commands do not mix. Exit code 0 completes the record. Any other code is a failure, which is retried, and finally sends
the record to the dead-letter topic, if there is one. If the shell cannot find or run the command, the consumer stops,
because no record is the cause.

Each command has its own process group, so that Ctrl-C on a terminal reaches only this process, which waits for running
commands. When this process must stop without waiting, it kills the commands.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
from structlog.typing import EventDict

from tidemill.app import logs
from tidemill.cli.connection import client_settings
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.output import remark
from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.options import Halted, InvalidOption, Retry
from tidemill.client.parallel.record import ParallelRecord

if TYPE_CHECKING:
    from tidemill.pipelines.spec.core.broker import KafkaBroker

KEY_BYTES_MAX = 32 * 1024
"""Longer keys are left out, because the system limits the size of an environment."""
_CANNOT_RUN = {126: "cannot be run", 127: "was not found"}
"""Exit codes of the shell."""


class Execute:
    """Runs the command for a record."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._printing = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def __call__(self, record: ParallelRecord) -> None:
        """Run the command. CommandFailed if it fails, Halted if the shell cannot run it."""
        process = subprocess.Popen(  # noqa: S602 -- the user passes a shell command
            self._command,
            shell=True,
            env=os.environ | _environment(record),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        self._running.add(process)
        with process:
            output, _ = process.communicate(record.value or b"")
        self._running.discard(process)
        with self._printing:
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
        if process.returncode in _CANNOT_RUN:
            raise Halted(f"the command {self._command!r}, or one in it, {_CANNOT_RUN[process.returncode]}")
        if process.returncode:
            raise CommandFailed(f"exit code {process.returncode} of {self._command!r}")

    def end(self) -> None:
        """Kill the commands that are still running."""
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def _environment(record: ParallelRecord) -> dict[str, str]:
    key = record.key if record.key is not None and len(record.key) <= KEY_BYTES_MAX else b""
    return {
        "TIDEMILL_TOPIC": record.topic,
        "TIDEMILL_PARTITION": str(record.partition),
        "TIDEMILL_OFFSET": str(record.offset),
        # Binary numbers are common keys. Most have zero bytes, which an environment cannot hold.
        "TIDEMILL_KEY": "" if b"\0" in key else key.decode("utf-8", "surrogateescape"),
        "TIDEMILL_KEY_HEX": key.hex(),
        "TIDEMILL_TIMESTAMP": str(record.timestamp),
        "TIDEMILL_ATTEMPT": str(record.attempt),
    }


def run(
    broker: "KafkaBroker",
    topic: str,
    group: str,
    command: str,
    *,
    workers: int,
    dead_letter: str | None,
    attempts: int,
    limit: int | None,
) -> None:
    """Run the command for every record until Ctrl-C, or for `limit` records."""
    _log_to_stderr()
    try:
        consumer = ParallelConsumer(
            client_settings(broker, **{"group.id": group}),
            [topic],
            workers=workers,
            retry=Retry(attempts=attempts),
            dead_letter=dead_letter,
            on_exhausted="halt",
            max_records=limit,
        )
    except InvalidOption as error:
        raise WrongUse(str(error)) from None
    remark(f"running {command!r} for each record of {topic} as group {group}; Ctrl-C stops after the running commands")
    execute = Execute(command)
    try:
        consumer.run(execute)
    except Halted as halted:
        raise CommandFailed(f"{halted}; fix the cause and run the command again to continue") from None
    finally:
        execute.end()
    stats = consumer.stats()
    remark(f"{stats.completed:,} records handled, {stats.retries:,} tried again, {stats.dead_letters:,} dead letters")


def _log_to_stderr() -> None:
    logs.configure("warning", "human")
    structlog.configure(processors=[_without_halt_event, *structlog.get_config()["processors"]])


def _without_halt_event(_: object, __: str, event: EventDict) -> EventDict:
    """Drop the halt event, because the command reports the error itself."""
    if event["event"] == "consumer_halted":
        raise structlog.DropEvent
    return event
