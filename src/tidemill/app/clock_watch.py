"""The clock watch of a node: its limits from the settings, its record in the data directory."""

from tidemill.app.clocks import SystemClocks
from tidemill.app.data_directory import TIMELINES
from tidemill.broker.topic_directories import CLEAN_MARKER, STREAMS
from tidemill.clocks.core.doubt import DoubtLimits
from tidemill.clocks.record import ClockRecord
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.journal import JOURNAL
from tidemill.settings import Settings

WRITTEN = (f"{STREAMS}/*/*/*.log", CLEAN_MARKER, JOURNAL, TIMELINES, f"{TIMELINES}-wal")
"""Files that show when the last run wrote or stopped. Not `lock`: this start has just written it."""


def open_watch(settings: Settings, times: SystemClocks) -> ClockWatch:
    """Compare the clock with what the last run left, before anything is opened that writes; blocks for a moment."""
    broker = settings.broker
    limits = DoubtLimits(
        jump_ms=broker.tidemill_clock_jump_max_ms,
        difference_ms=broker.tidemill_clock_difference_max_ms,
        stop_ms=broker.tidemill_clock_stop_max_ms,
        accept_ms=broker.tidemill_clock_accept_after_ms,
    )
    return ClockWatch(times, ClockRecord(settings.data_dir, WRITTEN), limits)
