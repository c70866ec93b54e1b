"""Configures logging to standard error: readable on a terminal, JSON lines elsewhere.

Nothing is logged to standard output, because clients of `tidemill serve` read the ready line there.
"""

import json
import logging
import os
import sys
import time
import traceback
from typing import Any, TextIO

import structlog
from structlog.typing import ExcInfo

from tidemill.broker.recent_log import RecentLog

RECENT = RecentLog()
"""The newest warnings and errors of this process."""
_KEPT = frozenset({"warning", "error", "critical"})
_SHOWN_APART = frozenset({"level", "logger", "event", "exc_info"})
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(level: str, style: str) -> None:
    """Configure logging for this process. Only entry points call it."""
    human = style == "human" or (style == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.processors.add_log_level,
        _add_name,
        _keep,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
        structlog.processors.format_exc_info if not human else _unchanged,
    ]
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_pretty) if human else _json
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_Lines,
        cache_logger_on_first_use=True,
    )


def forward_libraries() -> None:
    """Send the log records of libraries through structlog. Only for a process that runs nothing else."""
    logging.getLogger().addHandler(_Forward(logging.WARNING))


def quiet_unless_configured() -> None:
    """Log warnings only, for brokers in a test or notebook. Does nothing if that process has configured structlog."""
    if not structlog.is_configured():
        configure("warning", "auto")


class _Forward(logging.Handler):
    """Sends the log records of libraries through structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger(record.name)
        logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)


class _Lines:
    """Writes whole lines to the current `sys.stderr`, which test runners replace."""

    def __init__(self, name: str = "tidemill") -> None:
        self.name = name

    def write(self, text: str) -> None:
        sys.stderr.write(text + "\n")

    debug = info = warning = error = exception = critical = fatal = write


def _add_name(logger: _Lines, _: str, event: Any) -> Any:
    event["logger"] = logger.name
    return event


def _keep(_: Any, __: str, event: Any) -> Any:
    """Keep warnings and errors for the console."""
    if event["level"] in _KEPT:
        fields = {name: value for name, value in event.items() if name not in _SHOWN_APART}
        now_ms = int(time.time() * 1000)
        text = _traceback_text(event.get("exc_info"))
        RECENT.add(now_ms, event["level"], event["logger"], str(event.get("event", "")), fields, text)
    return event


def _traceback_text(error: Any) -> str:
    """The traceback of an event's `exc_info`, without local variables: they may be passwords and records."""
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, tuple):
        error = error[1]
    return "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""


def _pretty(text: TextIO, error: ExcInfo) -> None:
    """Print a readable traceback, without local variables: they may be passwords and records.

    rich is imported here, because importing it is slow (see `startup`).
    """
    from rich.console import Console  # noqa: PLC0415 -- heavy
    from rich.traceback import Traceback  # noqa: PLC0415

    text.write("\n")
    shown = Traceback.from_exception(*error, word_wrap=True)
    Console(file=text, color_system="truecolor").print(shown)


def _unchanged(_: Any, __: str, event: Any) -> Any:
    return event


def _json(_: Any, __: str, event: Any) -> str:
    first = {name: event.pop(name) for name in ("timestamp", "level", "logger", "event") if name in event}
    return json.dumps({**first, **event}, default=str, ensure_ascii=False)
