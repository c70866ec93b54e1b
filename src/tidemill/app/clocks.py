"""The clock watch of a node: its limits from the settings, its record in the data directory."""

from tidemill.app.times import Times
from tidemill.broker.stores import STREAMS
from tidemill.clocks.core.doubt import Limits
from tidemill.clocks.record import ClockRecord
from tidemill.clocks.watch import ClockWatch
from tidemill.settings import Settings


def open_watch(settings: Settings, times: Times) -> ClockWatch:
    """Compare the clock with what the last run left; blocks for a moment."""
    broker = settings.broker
    limits = Limits(
        jump_ms=broker.tidemill_clock_jump_max_ms,
        difference_ms=broker.tidemill_clock_difference_max_ms,
        stop_ms=broker.tidemill_clock_stop_max_ms,
        accept_ms=broker.tidemill_clock_accept_after_ms,
    )
    return ClockWatch(times, ClockRecord(settings.data_dir, settings.data_dir / STREAMS), limits)
