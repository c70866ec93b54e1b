"""The metrics of clocks: how far other clocks are from ours, and whether ours is in doubt.

The label `target` has five values, however many brokers and clients there are. For each of them the difference that is
furthest from zero is reported: an average would hide two clocks that are wrong in opposite directions.
"""

from collections.abc import Callable, Iterator, Sequence

from tidemill.broker.clock_drifts import CLIENTS, STORE, WATCHED
from tidemill.clocks.core.doubt import DoubtKind
from tidemill.clocks.watch import ClockWatch
from tidemill.model.metrics import Gauge
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.health import DRIFT_MS_MAX


def clock_readings(watch: ClockWatch) -> Callable[[], Iterator[Gauge]]:
    """Whether the clock of this broker is in doubt, and how far those of other brokers and of coordination are."""

    def read() -> Iterator[Gauge]:
        kinds = watch.kinds()
        for kind in DoubtKind:
            labels = (("reason", kind.value),)
            yield Gauge("tidemill_clock_in_doubt", "The wall clock is in doubt.", float(kind.value in kinds), labels)
        for doubt, target in WATCHED.items():
            found = [(one.offset_ms, one.error_ms) for one in watch.differences() if one.kind is doubt]
            yield from _drifts(target, found)

    return read


def timeline_clock_readings(dispatcher: Dispatcher) -> Callable[[], Iterator[Gauge]]:
    """How far the clocks of the timeline store and of the clients of timelines are from ours."""

    def read() -> Iterator[Gauge]:
        store_ms = dispatcher.guard.store_drift_ms
        yield from _drifts(STORE, [] if store_ms is None else [(store_ms, 0)])
        for kind, target in CLIENTS.items():
            yield from _drifts(target, [(drift_ms, 0) for drift_ms in dispatcher.guard.client_drifts_ms(kind)])

    return read


def _drifts(target: str, found: Sequence[tuple[float, int]]) -> Iterator[Gauge]:
    """The metrics of the clocks of one kind, from their differences and the errors of these readings."""
    labels = (("target", target),)
    wrong = sum(abs(drift_ms) - error_ms > DRIFT_MS_MAX for drift_ms, error_ms in found)
    yield Gauge("tidemill_clock_drifts", "Other clocks that differ by more than a second.", wrong, labels)
    if found:  # without a clock to compare with, there is no difference
        largest_s = max((drift_ms for drift_ms, _ in found), key=abs) / 1_000
        yield Gauge("tidemill_clock_drift_seconds", "The other clock that differs most, less ours.", largest_s, labels)
