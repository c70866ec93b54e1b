"""Sends metrics and spans to a collector, as long as the broker runs.

Every signal has a loop that decides when to send, and a thread that sends. The loop waits for the thread, so at most
one request of a signal is under way. A collector that is slow or away costs spans, which are counted, and nothing else.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tidemill import __version__
from tidemill.app.otlp.abortable_session import AbortableSession
from tidemill.app.otlp.environment import OtelEnvironment
from tidemill.app.otlp.export_thread import ExportThread
from tidemill.app.otlp.otlp_metrics import Moment, metrics_data
from tidemill.app.otlp.otlp_spans import readable_spans
from tidemill.broker.metrics import BrokerMetrics
from tidemill.broker.prometheus import readings_in_turns
from tidemill.model.metrics import MetricReading
from tidemill.supervision.supervisor import Supervisor
from tidemill.tracing.span import FinishedSpan
from tidemill.tracing.span_queue import EXPORT_FAILED, SpanQueue

FLUSH_S = 2.0
"""How long a stop waits for the last export."""
JOIN_S = 2.0
"""How long a stop waits for a thread whose request was aborted."""
SCOPE = InstrumentationScope("tidemill", __version__)

log = structlog.get_logger("tidemill.otlp")


class OtlpSender:
    """One signal: its exporter, its thread, and whether the last export failed."""

    def __init__(self, signal: str, make: Callable[[AbortableSession], Any], accepted: object) -> None:
        self._signal = signal
        self._accepted = accepted
        self._session = AbortableSession()
        self._exporter = make(self._session)
        self._thread = ExportThread(f"tidemill-otlp-{signal}")
        self.is_failing = False

    async def send(self, make: Callable[[], Any]) -> bool:
        """Make the data and send it, in the thread; whether the collector has accepted it."""
        try:
            result = await self._thread.run(lambda: self._exporter.export(make()))
            reason = "the collector did not accept it"
        except Exception as error:  # noqa: BLE001 -- whatever a library raises must not end the loop
            # Its text may have the headers and the address, with their passwords.
            result, reason = None, type(error).__name__
        is_accepted = result is self._accepted
        if not is_accepted and not self.is_failing:
            log.warning(
                "otlp_export_failed",
                signal=self._signal,
                error=reason,
                next_step="check OTEL_EXPORTER_OTLP_ENDPOINT and the collector",
            )
        elif is_accepted and self.is_failing:
            log.info("otlp_export_works_again", signal=self._signal)
        self.is_failing = not is_accepted
        return is_accepted

    async def close(self) -> None:
        """End the thread, also if the collector does not answer."""
        self._exporter.shutdown()
        self._session.abort()
        if not await self._thread.stop(JOIN_S):
            log.warning("otlp_thread_still_waits", signal=self._signal)


class OtlpExporter:
    """The export of one broker."""

    def __init__(
        self, supervisor: Supervisor, environment: OtelEnvironment, attributes: Mapping[str, str], started_ns: int
    ) -> None:
        _quiet_library()
        self._supervisor = supervisor
        self._environment = environment
        # The variables win over our attributes; OTEL_SERVICE_NAME wins over OTEL_RESOURCE_ATTRIBUTES.
        self._resource = Resource(dict(attributes)).merge(OTELResourceDetector().detect())
        self._started_ns = started_ns
        self._tasks: list[asyncio.Task[None]] = []
        self._senders: list[OtlpSender] = []
        self._flushes: list[tuple[OtlpSender, Callable[[], Awaitable[None]]]] = []

    def export_spans(self, queue: SpanQueue) -> None:
        """Send the spans of this queue from now on."""
        sender = OtlpSender("traces", lambda session: OTLPSpanExporter(session=session), SpanExportResult.SUCCESS)
        wanted = asyncio.Event()
        queue.on_half = wanted.set

        async def loop() -> None:
            while True:
                with suppress(TimeoutError):  # then it is time for the next export anyway
                    await asyncio.wait_for(wanted.wait(), self._environment.span_delay_s)
                wanted.clear()
                await self._send_spans(sender, queue)

        self._begin("otlp traces", sender, loop, partial(self._send_spans, sender, queue))

    def export_metrics(self, metrics: BrokerMetrics) -> None:
        """Send all metrics from now on."""
        sender = OtlpSender("metrics", lambda session: OTLPMetricExporter(session=session), MetricExportResult.SUCCESS)

        async def loop() -> None:
            while True:
                await asyncio.sleep(self._environment.metric_interval_s)
                await self._send_metrics(sender, metrics)

        self._begin("otlp metrics", sender, loop, partial(self._send_metrics, sender, metrics))

    async def close(self) -> None:
        """Send what is left, unless the collector is away, and end the threads."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(_flush(sender, flush) for sender, flush in self._flushes))
        await asyncio.gather(*(sender.close() for sender in self._senders))

    def _begin(
        self,
        name: str,
        sender: OtlpSender,
        loop: Callable[[], Awaitable[None]],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._senders.append(sender)
        self._flushes.append((sender, flush))
        self._tasks.append(self._supervisor.keep(name, loop))

    async def _send_spans(self, sender: OtlpSender, queue: SpanQueue) -> None:
        while spans := queue.take(self._environment.batch_spans_max):
            if not await sender.send(partial(self._spans, spans)):
                queue.dropped[EXPORT_FAILED] += len(spans)
                return  # the others wait for the next turn
            queue.exported += len(spans)

    def _spans(self, spans: Sequence[FinishedSpan]) -> Any:
        return readable_spans(spans, self._resource, SCOPE)

    async def _send_metrics(self, sender: OtlpSender, metrics: BrokerMetrics) -> None:
        readings: list[MetricReading] = []
        async for some in readings_in_turns(metrics, by_partition=False):
            readings += some
        moment = Moment(self._started_ns, time.time_ns())
        await sender.send(partial(self._metrics, readings, metrics, moment))

    def _metrics(self, readings: Sequence[MetricReading], metrics: BrokerMetrics, moment: Moment) -> Any:
        return metrics_data(readings, metrics.labels, moment, self._resource, SCOPE)


async def _flush(sender: OtlpSender, flush: Callable[[], Awaitable[None]]) -> None:
    if sender.is_failing:
        return
    try:
        async with asyncio.timeout(FLUSH_S):
            await flush()
    except TimeoutError:
        log.warning("otlp_flush_timed_out", limit_s=FLUSH_S)


def _quiet_library() -> None:
    """The library logs every failed request. We log an outage once; a program that has set a level keeps it."""
    logger = logging.getLogger("opentelemetry.exporter")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
