"""Adds up what Spark reports about the queries of a pipeline, and sends reports about it to the broker."""

import secrets
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from tidemill.pipelines.run.core.pipeline_facts import PipelineFacts, ProcessFacts, report_of
from tidemill.pipelines.run.core.progress import SinkProgress
from tidemill.pipelines.run.core.query_measurements import QueryFacts, QueryMeasurements
from tidemill.pipelines.run.report_uplink import ReportUplink
from tidemill.pipelines.run.runner import Reports
from tidemill.wire.pipeline_report import ERROR_CHARS_MAX, QUERIES_MAX, QueryReport, RunState

NO_FACTS = QueryFacts()


class PipelineReporter:
    """The reports of one run. As a context it reports how the run ends."""

    def __init__(
        self,
        facts: PipelineFacts,
        options: Mapping[str, str],
        say: Callable[[str], None],
        clock_ms: Callable[[], int],
    ) -> None:
        """`options` are those of a Kafka client."""
        self._facts = facts
        self._clock_ms = clock_ms
        self._process = ProcessFacts(secrets.token_hex(6), socket.gethostname(), clock_ms())
        self._queries = {name: QueryMeasurements(SinkProgress(name)) for name in facts.queries}
        self._ended: dict[str, str] = {}
        """The queries that have ended while others may run, with their errors."""
        self._uplink = ReportUplink(options, say)

    def __enter__(self) -> Self:
        self.publish("starting")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, KeyboardInterrupt):
            self.publish("stopped")
        else:
            self.publish("failed", " ".join(str(error).split()) or type(error).__name__)
        self._uplink.close()

    def take(self, reports: Reports) -> None:
        """Add up reports, and report that the pipeline runs."""
        now_ms = self._clock_ms()
        for name, batches in reports.items():
            before = self._queries.get(name) or QueryMeasurements(SinkProgress(name))
            self._queries[name] = before.after(batches, now_ms)
        self.publish("running")

    def begin_query(self, name: str) -> None:
        """A query has started, for owners whose queries come and go. Those that ended first make room for it."""
        for ended in list(self._ended)[: max(0, len(self._queries) + 1 - QUERIES_MAX)]:
            del self._queries[ended], self._ended[ended]
        self._ended.pop(name, None)
        self._queries[name] = QueryMeasurements(SinkProgress(name))
        self.publish("running")

    def end_query(self, name: str, error: str) -> None:
        """A query has ended; its error is empty if it was stopped. The pipeline ends with its last query."""
        self._ended[name] = error
        failed = next((f"{each}: {why}" for each, why in self._ended.items() if why), "")
        state: RunState = "running" if self._queries.keys() - self._ended.keys() else "failed" if failed else "stopped"
        self.publish(state, failed)

    def publish(self, state: RunState, error: str = "") -> None:
        """Send the state to the broker, without waiting for it. Nothing is sent before a topic is known."""
        queries = [self._query_report(name, state, error) for name in self._queries]
        report = report_of(self._facts, self._process, queries, state, error[:ERROR_CHARS_MAX])
        if report.reads or report.writes:
            self._facts = self._facts._replace(reads=report.reads)  # also while a query has just started again
            self._uplink.send(report)

    def close(self) -> None:
        """Report that the queries that still run have stopped, and end."""
        if self._queries.keys() - self._ended.keys():
            self.publish("stopped")
        self._uplink.close()

    def _query_report(self, name: str, state: RunState, error: str) -> QueryReport:
        own, why = state, ""
        if name in self._ended:
            why = self._ended[name]
            own = "failed" if why else "stopped"
        elif state == "failed" and error.startswith(f"{name}: "):
            why = error
        elif state == "failed":
            own = "stopped"
        return self._queries[name].report(self._facts.queries.get(name, NO_FACTS), own, why)
