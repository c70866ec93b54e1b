"""Running queries: waiting for them, what they report, how they stop, and their errors in one line."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tidemill.pipelines.core.errors import PipelineError

_OURS = re.compile(r"tidemill[\w.]*\.[A-Z]\w*: ([^\n]+)")
_EXPECTATION = re.compile(r"expectation [^\n]+ does not hold[^\n]*")
_PYTHONS = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t]+[^\n]*\n)+(\w[^\n]*)")
_SPARKS = re.compile(r"^(?:\w+(?:\.\w+)*(?:Exception|Error): )?(.+)$", re.MULTILINE)
LINE_CHARS_MAX = 400


class Queries:
    """The queries of one pipeline by the names of their sinks."""

    def __init__(self, running: Mapping[str, StreamingQuery]) -> None:
        self._running = dict(running)
        self._told: dict[str, str] = {}

    def ended(self) -> bool:
        """True when all have ended; PipelineError when one has failed."""
        for name, query in self._running.items():
            error = query.exception()
            if error is not None:
                raise PipelineError(f"{name}: {line_of(str(error))}")
        return not any(query.isActive for query in self._running.values())

    def add(self, name: str, query: StreamingQuery) -> None:
        """One more."""
        self._running[name] = query

    def progress(self) -> dict[str, list[dict[str, Any]]]:
        """What each query has reported since the last call."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name, query in self._running.items():
            reports = [dict(json.loads(each.json)) for each in query.recentProgress]
            found[name] = [each for each in reports if each["timestamp"] > self._told.get(name, "")]
            if found[name]:
                self._told[name] = found[name][-1]["timestamp"]
        return found

    def stop(self) -> None:
        """Stop them all; a micro-batch that is cut off runs again from its checkpoint the next time."""
        for query in self._running.values():
            query.stop()


def line_of(text: str) -> str:
    """The line of a long Spark error that says what is wrong."""
    found = _EXPECTATION.search(text)
    line = found[0] if found else None
    if line is None:
        told = _OURS.findall(text) or _PYTHONS.findall(text)
        line = told[-1] if told else None
    if line is None:
        first = _SPARKS.search(text)
        line = first[1] if first else text
    return line.strip()[:LINE_CHARS_MAX]
