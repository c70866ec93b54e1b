"""Running queries: waiting for them, what they report, how they stop, and their errors in one line."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.streaming.query import StreamingQuery

from tidemill.pipelines.core.errors import GO_ON, GO_ON_ANEW, PipelineError
from tidemill.pipelines.spark.quiet_session import LOG

_OURS = re.compile(r"tidemill[\w.]*\.[A-Z]\w*: ([^\n]+)")
_EXPECTATION = re.compile(r"expectation [^\n]+ does not hold[^\n]*")
_PYTHONS = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)+(\w[^\n]*)")
_SPARKS = re.compile(r"^(?:\w+(?:\.\w+)*(?:Exception|Error): )?(.+)$", re.MULTILINE)
_ABSENT = re.compile(
    r"No module named '(?:tidemill|pyspark_tidemill|pyspark|pyarrow|pandas|numpy)'"
    r"|Cannot run program \"[^\"]*python[^\"]*\"[^\n]*"
)
"""A worker without us or what comes with us: it has another Python than the driver."""
PYTHON_ADVICE = "install Tidemill in the Python of Spark's workers, or set PYSPARK_PYTHON to the one that has it"
LINE_CHARS_MAX = 400
OF_COMMANDS = {
    GO_ON: "--skip-lost goes on with what is there",
    GO_ON_ANEW: "its offsets begin anew, so it needs another folder",
}
"""What the commands of built-in pipelines have for the options of a source."""
NO_MESSAGE = "(no cause message)"


class Queries:
    """The queries of one pipeline by the names of their sinks."""

    def __init__(self, running: Mapping[str, StreamingQuery], words: Mapping[str, str] | None = None) -> None:
        """`words` replace those of `core.errors` that say how a query goes on when records are gone."""
        self._running = dict(running)
        self._words = words or {}
        self._told: dict[str, str] = {}

    def ended(self) -> bool:
        """True when all have ended; PipelineError when one has failed, or when Spark itself is gone."""
        with _gone_told():
            active = [name for name, query in self._running.items() if self._runs(name, query)]
        return not active

    def _runs(self, name: str, query: StreamingQuery) -> bool:
        """Whether it is still at work; PipelineError when it has failed.

        Spark tells the errors of a query, those of the JVM too. A thread that died without a word is looked for as
        well: its query would be active for ever.
        """
        error = query.exception()
        if error is not None:
            reason = _reason(query, str(error))
            for ours, theirs in self._words.items():
                reason = reason.replace(ours, theirs)
            raise PipelineError(f"{name}: {reason}")
        if not query.isActive:
            return False
        thread = _thread(query)
        if thread is not None and not thread.isAlive() and query.isActive:
            raise PipelineError(f"{name}: the query's thread died; what Spark said last is in {LOG}")
        return True

    def add(self, name: str, query: StreamingQuery) -> None:
        """One more."""
        self._running[name] = query

    def progress(self) -> dict[str, list[dict[str, Any]]]:
        """What each query has reported since the last call."""
        found: dict[str, list[dict[str, Any]]] = {}
        with _gone_told():
            for name, query in self._running.items():
                reports = [dict(json.loads(each.json)) for each in query.recentProgress]
                found[name] = [each for each in reports if each["timestamp"] > self._told.get(name, "")]
                if found[name]:
                    self._told[name] = found[name][-1]["timestamp"]
        return found

    def stop(self) -> None:
        """Stop them all; a micro-batch that is cut off runs again from its checkpoint the next time."""
        for query in self._running.values():
            with suppress(OSError, Py4JError, SparkConnectException):  # what is gone has stopped
                query.stop()


@contextmanager
def _gone_told() -> Iterator[None]:
    """One line when the JVM, or the Spark Connect server, does not answer any more."""
    try:
        yield
    except (OSError, Py4JError, SparkConnectException) as error:
        raise PipelineError(f"Spark is gone ({line_of(str(error))}); run it again to go on") from None


def _thread(query: StreamingQuery) -> Any:
    """The thread of the JVM that runs the query; None behind Spark Connect, where nobody can see it."""
    known = getattr(query, "_jsq", None)
    return None if known is None else known.streamingQuery().queryExecutionThread()


def _reason(query: StreamingQuery, told: str) -> str:
    """The line that says what is wrong; an error of the JVM may have a name and no message."""
    known = getattr(query, "_jsq", None)
    if NO_MESSAGE not in told or known is None:
        return line_of(told)
    return line_of(str(known.exception().get().cause().toString()))


def line_of(text: str) -> str:
    """The line of a long Spark error that says what is wrong."""
    if absent := _ABSENT.search(text):
        return f"{absent[0].rstrip()}: {PYTHON_ADVICE}"[:LINE_CHARS_MAX]
    found = _EXPECTATION.search(text)
    line = found[0] if found else None
    if line is None:
        told = _OURS.findall(text) or _PYTHONS.findall(text)
        line = told[-1] if told else None
    if line is None:
        first = _SPARKS.search(text)
        line = first[1] if first else text
    return line.strip()[:LINE_CHARS_MAX]
