"""Opens the clock watch of a node: limits from the settings, record in the data directory."""

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
    """Compare the clock with the traces of the last run. Call it before anything that writes is opened.

    The call blocks while it reads the files.
    """
    broker = settings.broker
    limits = DoubtLimits(
        jump_ms=broker.tidemill_clock_jump_max_ms,
        difference_ms=broker.tidemill_clock_difference_max_ms,
        stop_ms=broker.tidemill_clock_stop_max_ms,
        accept_ms=broker.tidemill_clock_accept_after_ms,
    )
    return ClockWatch(times, ClockRecord(settings.data_dir, WRITTEN), limits)
