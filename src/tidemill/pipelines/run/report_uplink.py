"""Sends the reports of a pipeline to its broker, from a thread of its own, so that no query waits for it.

Only the newest report matters. It is sent when the state changes, at most every few seconds otherwise, and again after
a while, so that the broker can tell a quiet pipeline from one that has ended. A broker that does not take reports
(another version, Apache Kafka) or does not answer costs one small request a minute.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from tidemill.client.kafka import KafkaClient
from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    TidemillError,
    TopicAuthorizationFailed,
)
from tidemill.model.topics import PIPELINES, TopicPartition
from tidemill.pipelines.run.core.report_size import bounded
from tidemill.records.build import NewRecord, build_batch
from tidemill.wire.pipeline_report import PipelineReport, encode_report

EVERY_S = 5.0
REPEAT_S = 15.0
RETRY_S_MAX = 60.0
STEP_S = 0.05
CLOSE_S = 5.0
"""How long the end of a pipeline waits until its last report is sent."""
PARTITION = TopicPartition(PIPELINES, 0)
TIMES = {"default.api.timeout.ms": "10000", "request.timeout.ms": "10000"}

log = logging.getLogger("tidemill.spark")


class ReportUplink:
    """The thread of one pipeline. `options` are those of its Kafka client; `say` prints what the user can change."""

    def __init__(self, options: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._options = {**options, **TIMES}
        self._say = say
        self._turn = threading.Condition()
        self._newest: PipelineReport | None = None
        self._is_closing = False
        self._has_complained = False
        self._thread = threading.Thread(target=self._run, name="pipeline reports", daemon=True)
        self._thread.start()

    def send(self, report: PipelineReport) -> None:
        """Send this report in place of older ones."""
        with self._turn:
            self._newest = report
            self._turn.notify()

    def close(self) -> None:
        """Wait a little until the newest report is sent, and stop."""
        with self._turn:
            self._is_closing = True
            self._turn.notify()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        client: KafkaClient | None = None
        sent: PipelineReport | None = None
        wait_s, sent_s = EVERY_S, 0.0
        while (report := self._next(sent, sent_s, wait_s)) is not None:
            try:
                client = client or KafkaClient(self._options)
                deliver(client, report)
                wait_s = EVERY_S
            except Exception as error:  # noqa: BLE001 - a pipeline runs whether its reports arrive or not
                self._complain(error)
                wait_s = min(RETRY_S_MAX, 2 * wait_s)
                if client is not None:
                    client.close()
                    client = None
            sent, sent_s = report, time.monotonic()
        if client is not None:
            client.close()

    def _next(self, sent: PipelineReport | None, sent_s: float, wait_s: float) -> PipelineReport | None:
        """The next report to send; None at the end."""
        with self._turn:
            while True:
                since_s = time.monotonic() - sent_s
                newest = self._newest
                is_new = newest is not None and newest != sent
                if newest is not None and is_new:
                    is_urgent = sent is None or newest.state != sent.state
                    if self._is_closing or is_urgent or since_s >= wait_s:
                        return newest
                elif self._is_closing:
                    return None
                elif sent is not None and since_s >= max(REPEAT_S, wait_s):
                    return sent
                self._turn.wait(max(STEP_S, wait_s - since_s) if is_new else wait_s)

    def _complain(self, error: Exception) -> None:
        """Say once what the user can change; the rest is for the log."""
        log.debug("report_failed: %s", error)
        if isinstance(error, TopicAuthorizationFailed | ClusterAuthorizationFailed) and not self._has_complained:
            self._has_complained = True
            self._say(
                f"the broker does not show this pipeline: {error}; "
                "reports need READ on the topics that it reads and WRITE on those that it writes"
            )
        elif not isinstance(error, TidemillError | OSError):
            log.warning("report_failed: %r", error)


def deliver(client: KafkaClient, report: PipelineReport) -> None:
    """Send one report. A broker without the topic of reports raises UnknownTopicOrPartition."""
    if not client.known([PIPELINES]):
        client.metadata([PIPELINES])
    key, value = report.pipeline.encode(), encode_report(bounded(report))
    client.produce(PARTITION, build_batch([NewRecord(key, value, timestamp=report.started_ms)]))
