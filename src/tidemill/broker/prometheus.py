"""Metrics as Prometheus text or as OpenMetrics. The numbers are read on request, and cost nothing before.

The text can have a hundred thousand lines. It is made on the event loop, in turns of a few milliseconds: a thread would
hold Python's lock against every request of a client. Labels of the whole broker are written once, as text that is
added to every line.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from itertools import accumulate, islice

from tidemill.broker.loop_turns import LoopTurns
from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import CounterReading, Gauge, HistogramReading, Labels, MetricReading

READINGS_AT_ONCE = 50
"""How many readings are made between two looks at the time."""
OPENMETRICS_END = b"# EOF\n"
KINDS = {Gauge: "gauge", CounterReading: "counter", HistogramReading: "histogram"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_IS_SPECIAL = re.compile(r'[\\"\n]').search
_NO_LABELS: Labels = ()


class MetricsText:
    """The lines of every metric; those of one metric are kept together, as the format demands."""

    def __init__(self, broker_labels: Labels = (), *, is_openmetrics: bool = False) -> None:
        self._is_openmetrics = is_openmetrics
        self._broker_labels = _pairs(broker_labels)
        self._lines: dict[str, list[str]] = {}
        self._last_labels, self._last_text = _NO_LABELS, self._braces(self._broker_labels)

    def add(self, readings: Iterable[MetricReading]) -> None:
        """Add readings. Readings of one thing should share their labels: equal ones are formatted once."""
        for each in readings:
            lines = self._lines.get(each.name)
            if lines is None:
                lines = self._lines[each.name] = self._head(each)
            if isinstance(each, HistogramReading):
                lines += self._of_histogram(each)
                continue
            if each.labels is not self._last_labels:
                self._last_labels, self._last_text = each.labels, self._braces(self._joined(each.labels))
            suffix = "_total" if isinstance(each, CounterReading) else ""
            value = each.value if type(each.value) is int else _number(each.value)
            lines.append(f"{each.name}{suffix}{self._last_text} {value}\n")

    def encoded(self, name: str) -> bytes:
        """The lines of one metric."""
        return "".join(self._lines[name]).encode()

    def names(self) -> list[str]:
        """The metrics, in the order in which they were added first."""
        return list(self._lines)

    def _of_histogram(self, reading: HistogramReading) -> list[str]:
        name, histogram, labels = reading.name, reading.histogram, self._joined(reading.labels)
        before = f"{name}_bucket{{{labels},le=" if labels else f"{name}_bucket{{le="
        bounds = [*map(_number, histogram.bounds), "+Inf"]
        lines = [
            f'{before}"{bound}"}} {count}\n' for bound, count in zip(bounds, accumulate(histogram.counts), strict=True)
        ]
        braces = self._braces(labels)
        lines += (f"{name}_count{braces} {histogram.count}\n", f"{name}_sum{braces} {_number(histogram.total)}\n")
        return lines

    def _head(self, reading: MetricReading) -> list[str]:
        """The lines before those of a metric. OpenMetrics names a counter without its suffix there."""
        is_total = isinstance(reading, CounterReading) and not self._is_openmetrics
        name = f"{reading.name}_total" if is_total else reading.name
        doc = reading.doc.replace("\\", "\\\\").replace("\n", "\\n")
        if self._is_openmetrics:
            doc = doc.replace('"', '\\"')
        return [f"# HELP {name} {doc}\n# TYPE {name} {KINDS[type(reading)]}\n"]

    def _joined(self, labels: Labels) -> str:
        own = _pairs(labels)
        return f"{own},{self._broker_labels}" if own and self._broker_labels else own or self._broker_labels

    @staticmethod
    def _braces(labels: str) -> str:
        return f"{{{labels}}}" if labels else ""


def _pairs(labels: Labels) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels])


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES) if _IS_SPECIAL(value) else value


def _number(value: float) -> str:
    text = repr(float(value))
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)


async def readings_in_turns(metrics: BrokerMetrics, *, by_partition: bool) -> AsyncIterator[list[MetricReading]]:
    """Every reading of a broker, a few at a time; other work of the event loop runs in between."""
    turns = LoopTurns()
    for source in list(metrics.sources):
        async for some in _in_turns(source(), turns):
            yield some
    for snapshot in list(metrics.snapshots):
        async for some in _in_turns(await snapshot(by_partition), turns):
            yield some


async def _in_turns(readings: Iterable[MetricReading], turns: LoopTurns) -> AsyncIterator[list[MetricReading]]:
    left = iter(readings)
    while some := list(islice(left, READINGS_AT_ONCE)):
        yield some
        await turns.pause()


async def exposition(metrics: BrokerMetrics, *, by_partition: bool, is_openmetrics: bool = False) -> bytes:
    """The text that Prometheus reads."""
    text, turns, parts = MetricsText(metrics.labels, is_openmetrics=is_openmetrics), LoopTurns(), []
    async for some in readings_in_turns(metrics, by_partition=by_partition):
        text.add(some)
    for name in text.names():
        parts.append(text.encoded(name))
        await turns.pause()
    if is_openmetrics:
        parts.append(OPENMETRICS_END)
    return b"".join(parts)


class MetricsPage:
    """The text for scrapes. Requests that arrive while it is made wait, and share the next one."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._next: dict[tuple[bool, bool], asyncio.Task[bytes]] = {}

    async def text(self, *, by_partition: bool, is_openmetrics: bool = False) -> bytes:
        """The text as of now or later."""
        wanted = by_partition, is_openmetrics
        task = self._next.get(wanted)
        if task is None:
            task = self._next[wanted] = asyncio.get_running_loop().create_task(self._make(wanted))
        return await asyncio.shield(task)

    async def _make(self, wanted: tuple[bool, bool]) -> bytes:
        async with self._turn:
            del self._next[wanted]
            by_partition, is_openmetrics = wanted
            return await exposition(self._metrics, by_partition=by_partition, is_openmetrics=is_openmetrics)
