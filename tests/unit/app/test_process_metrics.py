"""The metrics of the process have the values that were measured."""

import asyncio
import time

import pytest
from tests.support.readings import histogram_of, values_of

from tidemill.app.process_metrics import ProcessMetrics, resident_bytes

BLOCKED_S = 0.3


def test_flushes_of_files_are_counted_with_their_time() -> None:
    metrics = ProcessMetrics()
    metrics.flush_duration.add(0.002)
    metrics.flush_duration.add(0.5)
    found = histogram_of(list(metrics.readings()), "tidemill_fsync_duration_seconds")
    assert (found.count, found.total, found.largest) == (2, 0.502, 0.5)


@pytest.mark.event_loop("uvloop")
async def test_work_that_blocks_the_event_loop_is_delay() -> None:
    metrics = ProcessMetrics()
    sampling = asyncio.create_task(metrics.sample())
    await asyncio.sleep(0)
    time.sleep(BLOCKED_S)  # noqa: ASYNC251 -- this is what is measured
    await asyncio.sleep(0.01)
    sampling.cancel()
    found = histogram_of(list(metrics.readings()), "tidemill_event_loop_delay_seconds")
    assert found.count >= 1
    assert found.largest >= BLOCKED_S / 3  # the timer was due in the meantime


def test_the_library_adds_memory_and_open_files() -> None:
    found = values_of(ProcessMetrics().readings())
    assert 0 < found["process_open_fds"] < found["process_max_fds"]
    assert found["process_resident_memory_bytes"] == pytest.approx(resident_bytes(), rel=0.5)
    assert found["process_cpu_seconds"] > 0
