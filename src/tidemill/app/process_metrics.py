"""Metrics of the process around a broker: its version, the delay of its event loop, and the time of disk flushes.

The delay is sampled: a timer fires ten times per second, and its lateness is how long other work kept the loop busy.
Memory, open files and processor time have the names that every Prometheus client uses.
"""

import asyncio
import os
import platform
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import process_time

from tidemill import __version__
from tidemill.broker.history import HistorySeries, HistorySource, Readings
from tidemill.broker.load_meter import ProcessUsage
from tidemill.model.metrics import CounterReading, Gauge, Histogram, HistogramReading, MetricReading

SAMPLE_S = 0.1
MEMORY = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LIBRARY = "prometheus_client"
"""Loaded with the first scrape: it would take a part of the time of the start."""


def resident_bytes() -> int:
    """The memory that the process has now; 0 where the system does not say."""
    try:
        return int(MEMORY.read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


class ProcessMetrics:
    """What the parts of one process count."""

    def __init__(self) -> None:
        self.flush_duration = Histogram()
        """Every fdatasync and fsync of the files of partitions."""
        self._loop_delay = Histogram()

    async def sample(self) -> None:
        """Measure the delay of the event loop until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SAMPLE_S
            await asyncio.sleep(SAMPLE_S)
            self._loop_delay.add(max(0.0, loop.time() - due))

    def usage(self) -> HistorySource:
        """The processor time and the memory of the process, for the history of the broker."""
        counted = process_time()

        def read(elapsed_s: float) -> Readings:
            nonlocal counted
            now = process_time()
            cores, counted = (now - counted) / elapsed_s, now
            return {"cpu_cores": {"": cores}, "memory_bytes": {"": float(resident_bytes())}}

        return HistorySource((HistorySeries("cpu_cores"), HistorySeries("memory_bytes")), read)

    def counted(self, disk_used: float) -> ProcessUsage:
        """What the load of the broker is measured from."""
        return ProcessUsage(process_time(), self._loop_delay, self.flush_duration, disk_used)

    def readings(self) -> Iterator[MetricReading]:
        """The values now."""
        labels = (("version", __version__), ("python", platform.python_version()))
        yield Gauge("tidemill_build_info", "The version of the broker; the value is always 1.", 1, labels)
        yield HistogramReading(
            "tidemill_event_loop_delay_seconds", "How late timers of the event loop fire.", self._loop_delay
        )
        yield HistogramReading(
            "tidemill_fsync_duration_seconds", "Time of one flush of a file of a log.", self.flush_duration
        )
        yield from _of_library()


def _of_library() -> Iterator[MetricReading]:
    """The metrics `process_*` and `python_gc_*`."""
    library = import_module(LIBRARY)
    registry = library.CollectorRegistry(auto_describe=False)
    library.ProcessCollector(registry=registry)
    library.GCCollector(registry=registry)
    for family in registry.collect():
        kind = CounterReading if family.type == "counter" else Gauge
        for sample in family.samples:
            yield kind(family.name, family.documentation, sample.value, tuple(sample.labels.items()))
