"""Running queries: waits for them, collects their progress, stops them, and shortens their errors to one line."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql.streaming.query import StreamingQuery

from tidemill.pipelines.errors import GO_ON, GO_ON_ANEW, PipelineError
from tidemill.pipelines.spark.quiet_session import LOG

_OURS = re.compile(r"tidemill[\w.]*\.[A-Z]\w*: ([^\n]+)")
_EXPECTATION = re.compile(r"expectation [^\n]+ does not hold[^\n]*")
_PYTHONS = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)+(\w[^\n]*)")
_SPARKS = re.compile(r"^(?:\w+(?:\.\w+)*(?:Exception|Error): )?(.+)$", re.MULTILINE)
_ABSENT = re.compile(
    r"No module named '(?:tidemill|pyspark_tidemill|pyspark|pyarrow|pandas|numpy)'"
    r"|Cannot run program \"[^\"]*python[^\"]*\"[^\n]*"
)
"""A worker lacks Tidemill or a dependency, so it has another Python than the driver."""
PYTHON_ADVICE = "install Tidemill in the Python of Spark's workers, or set PYSPARK_PYTHON to the one that has it"
LINE_CHARS_MAX = 400
OF_COMMANDS = {
    GO_ON: "give --skip-lost to continue with the records that are left",
    GO_ON_ANEW: "its offsets start again at 0, so write it to another folder",
}
"""The advice of built-in commands in place of a source's options."""
NO_MESSAGE = "(no cause message)"


class Queries:
    """The queries of one pipeline by the names of their sinks."""

    def __init__(self, running: Mapping[str, StreamingQuery], words: Mapping[str, str] | None = None) -> None:
        """`words` replace the advice in `pipelines.errors` on how to continue after records were lost."""
        self._running = dict(running)
        self._words = words or {}
        self._reported: dict[str, str] = {}

    def ended(self) -> bool:
        """Whether all queries have ended. Raises PipelineError when one has failed, or when Spark itself has ended."""
        with _reporting_lost_spark():
            active = [name for name, query in self._running.items() if self._runs(name, query)]
        return not active

    def _runs(self, name: str, query: StreamingQuery) -> bool:
        """Whether the query still runs. Raises PipelineError when it has failed.

        Spark reports the errors of a query, including those of the JVM. The query's thread is checked too, because a
        query whose thread died silently would stay active forever.
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
            raise PipelineError(f"{name}: the query's thread died; see the end of {LOG}")
        return True

    def add(self, name: str, query: StreamingQuery) -> None:
        """Add a query."""
        self._running[name] = query

    def progress(self) -> dict[str, list[dict[str, Any]]]:
        """The progress that each query has reported since the last call."""
        found: dict[str, list[dict[str, Any]]] = {}
        with _reporting_lost_spark():
            for name, query in self._running.items():
                reports = [dict(json.loads(each.json)) for each in query.recentProgress]
                found[name] = [each for each in reports if each["timestamp"] > self._reported.get(name, "")]
                if found[name]:
                    self._reported[name] = found[name][-1]["timestamp"]
        return found

    def stop(self) -> None:
        """Stop all queries. An interrupted micro-batch runs again from its checkpoint at the next start."""
        for query in self._running.values():
            with suppress(OSError, Py4JError, SparkConnectException):  # Spark itself may have ended
                query.stop()


@contextmanager
def _reporting_lost_spark() -> Iterator[None]:
    """Report in one line that the JVM or the Spark Connect server does not answer any more."""
    try:
        yield
    except (OSError, Py4JError, SparkConnectException) as error:
        raise PipelineError(f"Spark has ended ({line_of(str(error))}); run the command again to continue") from None


def _thread(query: StreamingQuery) -> Any:
    """The JVM thread that runs the query. None with Spark Connect, which does not show it."""
    known = getattr(query, "_jsq", None)
    return None if known is None else known.streamingQuery().queryExecutionThread()


def _reason(query: StreamingQuery, text: str) -> str:
    """The line with the cause. An error of the JVM may have a name and no message."""
    known = getattr(query, "_jsq", None)
    if NO_MESSAGE not in text or known is None:
        return line_of(text)
    return line_of(str(known.exception().get().cause().toString()))


def line_of(text: str) -> str:
    """The line of a long Spark error that contains the cause."""
    if absent := _ABSENT.search(text):
        return f"{absent[0].rstrip()}: {PYTHON_ADVICE}"[:LINE_CHARS_MAX]
    found = _EXPECTATION.search(text)
    line = found[0] if found else None
    if line is None:
        causes = _OURS.findall(text) or _PYTHONS.findall(text)
        line = causes[-1] if causes else None
    if line is None:
        first = _SPARKS.search(text)
        line = first[1] if first else text
    return line.strip()[:LINE_CHARS_MAX]
