"""How far other clocks are from that of this broker: of the store, of coordination, of brokers and of clients.

The five targets are those of the metrics (`clock_metrics.py`). Of servers, the difference furthest from zero counts. Of
clients it is the median of at least three: one client must not be able to alarm all others.
"""

from collections.abc import Iterable
from math import copysign
from statistics import median

from tidemill.clocks.core.doubt import Difference, DoubtKind
from tidemill.clocks.watch import ClockWatch
from tidemill.timelines.health import WITNESSES_MIN, ClientKind, HealthMonitor

BROKER, COORDINATION, STORE = "broker", "coordination", "store"
CLIENTS = {ClientKind.CONSUMER: "consumers", ClientKind.PRODUCER: "producers"}
WATCHED = {DoubtKind.BROKERS: BROKER, DoubtKind.COORDINATION: COORDINATION}


def clock_drifts(watch: ClockWatch | None, guard: HealthMonitor) -> dict[str, float]:
    """The largest difference of each target in milliseconds; positive if the other clock is ahead."""
    found: dict[str, float] = {}
    differences = () if watch is None else watch.differences()
    for kind, target in WATCHED.items():
        _keep(found, target, (_provable_ms(each) for each in differences if each.kind is kind))
    _keep(found, STORE, () if guard.store_drift_ms is None else (guard.store_drift_ms,))
    for client, target in CLIENTS.items():
        drifts_ms = guard.client_drifts_ms(client)
        if len(drifts_ms) >= WITNESSES_MIN:
            found[target] = median(drifts_ms)
    return found


def _provable_ms(difference: Difference) -> float:
    """The part of a difference that is not an error of the reading."""
    return copysign(max(0, abs(difference.offset_ms) - difference.error_ms), difference.offset_ms)


def _keep(found: dict[str, float], target: str, drifts_ms: Iterable[float]) -> None:
    largest = max(drifts_ms, key=abs, default=None)
    if largest is not None:
        found[target] = largest
