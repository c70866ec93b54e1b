"""What a client knows of the clock of its broker, and of its own clock compared with it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidemill.wire.grpc import timeline_pb2 as wire

OWN_CLOCK = "client"
"""The target of the drift of this client's own clock."""

log = logging.getLogger("tidemill.timeline")


@dataclass(frozen=True, slots=True)
class ClockState:
    """The state of the broker's clock: while it is in doubt, nothing is delivered."""

    in_doubt: bool
    reasons: tuple[str, ...] = ()
    drifts_ms: Mapping[str, int] = field(default_factory=dict)
    """The clocks that differ by more than a second from the broker's, and how far they are ahead of it.

    The names are store, coordination, broker, consumers, producers, and client for the clock of this machine.
    """


OnClock = Callable[[ClockState], None]


class ClockNotices:
    """The last known state of the broker's clock. Each change is logged once."""

    def __init__(self, on_clock: OnClock | None = None) -> None:
        self.state: ClockState | None = None
        self._on_clock = on_clock

    def take(self, state: wire.ClockState) -> None:
        """Take what the broker reports."""
        drifts_ms = {each.target: each.drift_ms for each in state.drifts}
        self.set(ClockState(state.in_doubt, tuple(state.reasons), drifts_ms))

    def set(self, state: ClockState) -> None:
        """Take a state; log what is new, and call the function of the user."""
        before, self.state = self.state or ClockState(in_doubt=False), state
        if state.in_doubt and not before.in_doubt:
            log.warning("broker_clock_in_doubt: nothing is delivered: %s", "; ".join(state.reasons))
        elif before.in_doubt and not state.in_doubt:
            log.info("broker_clock_trusted")
        for target in sorted(state.drifts_ms.keys() - before.drifts_ms.keys()):
            whose = "this machine" if target == OWN_CLOCK else target
            log.warning("clock_drift: %s is %d ms ahead of the broker", whose, state.drifts_ms[target])
        is_new = (before.in_doubt, before.reasons, before.drifts_ms.keys()) != (
            state.in_doubt,
            state.reasons,
            state.drifts_ms.keys(),
        )
        if self._on_clock is not None and is_new:
            self._on_clock(state)
