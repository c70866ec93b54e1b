"""Counts the commands that change topics, and their errors, for /metrics.

They have no label with the topic: after a deletion there is none, and the names in refused commands come from clients.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from tidemill.model.errors import TidemillError, UnknownServerError
from tidemill.model.metrics import CounterReading


class TopicCommand(Enum):
    """A command. The value is the label of the metric."""

    CREATE = "create"
    DELETE = "delete"
    ADD_PARTITIONS = "add_partitions"
    ALTER = "alter"


class TopicCommands:
    """How many commands this broker has processed for clients."""

    def __init__(self) -> None:
        self._commands = Counter[TopicCommand]()
        self._errors = Counter[tuple[TopicCommand, str]]()

    @contextmanager
    def counted(self, command: TopicCommand, *, is_counted: bool = True) -> Iterator[None]:
        """Count a command that is processed in the block; not one that only validates, or that the broker itself
        gives.
        """
        if not is_counted:
            yield
            return
        self._commands[command] += 1
        try:
            yield
        except Exception as error:
            known = type(error) if isinstance(error, TidemillError) else UnknownServerError
            self._errors[command, known.__name__] += 1
            raise

    def readings(self) -> Iterator[CounterReading]:
        """The counts as metrics."""
        for command in TopicCommand:
            yield CounterReading(
                "tidemill_topic_commands",
                "Commands of clients that change topics.",
                self._commands[command],
                (("operation", command.value),),
            )
        for (command, error), count in sorted(self._errors.items(), key=lambda each: (each[0][0].value, each[0][1])):
            yield CounterReading(
                "tidemill_topic_command_errors",
                "Commands that failed after the rights of the client were checked.",
                count,
                (("operation", command.value), ("error", error)),
            )
