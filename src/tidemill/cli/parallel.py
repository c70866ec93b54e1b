"""`tidemill consume --parallel N --exec COMMAND`: the parallel consumer for people without Python.

The command is run once for each record, through the shell: the value is its standard input, the rest is in its
environment (`TIDEMILL_TOPIC`, `_PARTITION`, `_OFFSET`, `_KEY`, `_TIMESTAMP`, `_ATTEMPT`). Exit code 0 completes the
record; any other is a failure that is tried again, and in the end goes to the dead-letter topic, if there is one.
"""

import os
import subprocess
import sys

from tidemill.cli.output import remark
from tidemill.cli.problem import CommandFailed, WrongUse
from tidemill.client.parallel.consumer import ParallelConsumer
from tidemill.client.parallel.options import Halted, InvalidOption, Retry
from tidemill.client.parallel.record import Record


class Execute:
    """Runs the command for a record."""

    def __init__(self, command: str, limit: int | None) -> None:
        self._command, self._limit = command, limit
        self.consumer: ParallelConsumer | None = None

    def __call__(self, record: Record) -> None:
        """Raise CommandFailed when the command does not succeed."""
        ran = subprocess.run(  # noqa: S602 -- the shell is what the user asked for
            self._command,
            shell=True,
            input=record.value or b"",
            env=os.environ | _environment(record),
            stdout=sys.stdout.fileno(),
            check=False,
        )
        if ran.returncode:
            raise CommandFailed(f"{self._command!r} ended with exit code {ran.returncode}")
        if self._limit is not None and self.consumer is not None and self.consumer.stats().completed + 1 >= self._limit:
            self.consumer.stop()


def _environment(record: Record) -> dict[str, str]:
    return {
        "TIDEMILL_TOPIC": record.topic,
        "TIDEMILL_PARTITION": str(record.partition),
        "TIDEMILL_OFFSET": str(record.offset),
        "TIDEMILL_KEY": (record.key or b"").decode("utf-8", "surrogateescape"),
        "TIDEMILL_TIMESTAMP": str(record.timestamp),
        "TIDEMILL_ATTEMPT": str(record.attempt),
    }


def run(
    bootstrap: str,
    topic: str,
    group: str,
    command: str,
    *,
    workers: int,
    dead_letter: str | None,
    attempts: int,
    limit: int | None,
) -> None:
    """Run the command for every record until Ctrl-C."""
    handler = Execute(command, limit)
    try:
        consumer = ParallelConsumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0},
            [topic],
            workers=workers,
            retry=Retry(attempts=attempts),
            dead_letter=dead_letter,
            on_exhausted="halt",
        )
    except InvalidOption as error:
        raise WrongUse(str(error)) from None
    handler.consumer = consumer
    remark(f"running {command!r} for each record of {topic} as group {group}; Ctrl-C ends after what is running")
    try:
        consumer.run(handler)
    except Halted as halted:
        raise CommandFailed(f"{halted}; mend it and run the command again: it goes on where it stopped") from None
    stats = consumer.stats()
    remark(f"{stats.completed:,} records handled, {stats.retries:,} tried again, {stats.dead_letters:,} dead letters")
