"""`tidemill.spark.report(spark, ...)`: shows the streaming queries of any session in the console of a broker.

Spark calls the listener on a thread of its own. The listener adds up what Spark reports, and a second thread sends it.
"""

import atexit
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidemill.pipelines.run.core.pipeline_facts import PipelineFacts
from tidemill.pipelines.run.core.query_measurements import name_text
from tidemill.pipelines.run.pipeline_reporter import PipelineReporter
from tidemill.pipelines.run.status import wall_ms
from tidemill.pipelines.spark.queries import line_of

ORIGIN = "Spark"
PREFIX = "kafka."
SERVERS = f"{PREFIX}bootstrap.servers"
UNNAMED_CHARS = 8

log = logging.getLogger("tidemill.spark")


class ReportListener(StreamingQueryListener):
    """Reports all queries of one session as one pipeline."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__()
        self._reporter = PipelineReporter(PipelineFacts(name, ORIGIN), options, log.warning, wall_ms)
        self._names: dict[str, str] = {}
        """The names of the queries that run, by the id of their run."""
        self._turn = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """A query has started."""
        with self._turn:
            self._named(str(event.runId), event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch has ended. The listener may have been added after the query had started."""
        with self._turn:
            name = self._named(str(event.progress.runId), event.progress.name)
            self._reporter.take({name: [json.loads(event.progress.json)]})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """A query waits for data."""
        with self._turn:
            name = self._names.get(str(event.runId))
            if name is not None:
                self._reporter.take({name: [{"timestamp": event.timestamp, "numInputRows": 0}]})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query has ended."""
        with self._turn:
            name = self._names.pop(str(event.runId), None)
            if name is not None:
                self._reporter.end_query(name, "" if event.exception is None else line_of(event.exception))

    def close(self) -> None:
        """Report the end of the process."""
        self._reporter.close()

    def _named(self, run: str, name: str | None) -> str:
        if run not in self._names:
            self._names[run] = name_text(name or f"query {run[:UNNAMED_CHARS]}")
            self._reporter.begin_query(self._names[run])
        return self._names[run]


def report(spark: SparkSession, options: str | Mapping[str, str], *, name: str | None = None) -> ReportListener:
    """Show the streaming queries of a session on the page Pipelines of a broker, and in its metrics.

    `options` is the address of the broker, or the options of a source with the prefix `kafka.`. `name` is the name of
    the pipeline: that of the application, if none is given. Queries are shown under their `queryName`. To end it, call
    `spark.streams.removeListener` with the result.
    """
    given: Mapping[str, Any] = {SERVERS: options} if isinstance(options, str) else options
    client = {key.removeprefix(PREFIX): str(value) for key, value in given.items() if key.startswith(PREFIX)}
    listener = ReportListener(name_text(name or _application(spark)), client)
    spark.streams.addListener(listener)
    atexit.register(listener.close)
    return listener


def _application(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.app.name", ORIGIN))
