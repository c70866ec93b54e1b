"""The health monitor: watches clock and store, and stops what would do harm while one of them is wrong.

States: *healthy*; *degraded*, for any of the reasons below; *inactive* before the start and after the stop.

Clock. The broker's wall clock is in doubt, it jumped (`core/clock.py`), or it differs from the clock of the store or of
most clients. Beyond `DRIFT_MS_MAX` nothing is leased, pushed or deleted by time, because a wrong clock would push the
wrong messages. One client with a wrong clock proves nothing: at least `WITNESSES_MIN` must agree, judged by their
median. The state ends when the clocks agree again, or when the clock has accepted the jump.

Store. After `ERRORS_IN_ROW` failures one operation in `SAMPLE_ONE_IN` is tried and the rest are rejected at once. So a
recovery is noticed, and an overloaded store is not loaded further. The first success ends it. A store that can be read
but not written (a full disk) is also degraded, until a write succeeds or none has been tried for `REFUSED_AGE_MS`.

Consumers. While the pushes of a timeline are stopped because most of its consumers fail (`core/circuit.py`), that is a
reason, too. It stops nothing else.
"""

import random
import statistics
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

import structlog

from tidemill.model.timeline_errors import StoreUnavailable, TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.interface import ClockTrust

DRIFT_MS_MAX = 1_000
ERRORS_IN_ROW = 5
SAMPLE_ONE_IN = 10
WITNESSES_MIN = 3
WITNESSES_MAX = 1_000
WITNESS_AGE_MS = 60_000
REFUSED_AGE_MS = 60_000
STOPPED_NAMED_MAX = 5
"""The most timelines with stopped pushes that are named."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class TimelinesState(StrEnum):
    """The state of the timelines of this broker."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    INACTIVE = "inactive"


class Doubt(StrEnum):
    """A kind of reason for being degraded."""

    BROKER_CLOCK = "broker clock"
    WALL_CLOCK = "wall clock"
    STORE_CLOCK = "store clock"
    CLIENT_CLOCKS = "client clocks"
    STORE_FAILING = "store failing"
    STORE_READ_ONLY = "store read-only"
    CONSUMERS_FAILING = "consumers failing"


class ClientKind(StrEnum):
    """What a client with a clock does."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


class _Witness(NamedTuple):
    """A reading of a client's clock."""

    at_ms: int
    drift_ms: float
    kind: ClientKind


@dataclass(frozen=True, slots=True)
class Health:
    """The part of `/health` about timelines."""

    state: TimelinesState
    reasons: tuple[str, ...]
    clock_drift_ms: int
    store_drift_ms: float
    clients_drift_ms: float
    store_errors_in_row: int


class HealthMonitor:
    """Decides whether leasing is safe and whether the store may be called."""

    def __init__(
        self, clock: Clock, rng: random.Random, *, drift_ms_max: int = DRIFT_MS_MAX, trust: ClockTrust | None = None
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._drift_ms_max = drift_ms_max
        self._trust = trust
        self._active = False
        self._errors_in_row = 0
        self._last_error = ""
        self._writes = _Writes()
        self._witnesses: dict[str, _Witness] = {}
        self.store_drift_ms: float | None = None
        """How far the store's clock is ahead of ours; None for a store without a clock."""
        self._reasons: tuple[str, ...] = ()
        self._clock_doubts: frozenset[Doubt] = frozenset()
        self._stopped: dict[str, str] = {}

    @property
    def state(self) -> TimelinesState:
        """Healthy, degraded or inactive."""
        if not self._active:
            return TimelinesState.INACTIVE
        return TimelinesState.DEGRADED if self.doubts() else TimelinesState.HEALTHY

    @property
    def sampling(self) -> bool:
        """True while the store keeps failing and only samples are tried."""
        return self._errors_in_row >= ERRORS_IN_ROW

    @property
    def _unwritable(self) -> bool:
        return self._writes.failed_in_row >= ERRORS_IN_ROW and self._writes.age_ms(self._clock) < REFUSED_AGE_MS

    @property
    def may_lease(self) -> bool:
        """False while the time is in doubt: nothing may be leased, pushed or deleted by time."""
        return self._active and not self._reasons

    @property
    def clock_reasons(self) -> tuple[str, ...]:
        """Why the time is in doubt, as of the last check."""
        return self._reasons

    @property
    def may_count(self) -> bool:
        """Whether a duration can be added to the time: not when this broker never had a correct time of day."""
        apart = abs(self.store_drift_ms or 0) > self._drift_ms_max
        return not apart and (self._trust is None or self._trust.has_base)

    def health(self) -> Health:
        """The state with its reasons and figures."""
        reasons = self._reasons
        if self.sampling:
            reasons = (*reasons, f"the store failed {self._errors_in_row} times in a row: {self._last_error}")
        elif self._unwritable:
            reasons = (*reasons, f"the store rejects writes: {self._writes.error}")
        reasons = (*reasons, *self._stopped_reasons())
        return Health(
            self.state,
            reasons,
            self._clock.drift_ms,
            self.store_drift_ms or 0.0,
            self._clients_drift_ms(),
            self._errors_in_row,
        )

    def activate(self, *, active: bool) -> None:
        """Set whether the timelines are in service."""
        self._active = active

    def doubts(self) -> frozenset[Doubt]:
        """The kinds of the reasons of `health`."""
        found = set(self._clock_doubts)
        if self.sampling:
            found.add(Doubt.STORE_FAILING)
        elif self._unwritable:
            found.add(Doubt.STORE_READ_ONLY)
        if self._stopped:
            found.add(Doubt.CONSUMERS_FAILING)
        return frozenset(found)

    def stopped(self, timeline: str, reason: str) -> None:
        """Report that the pushes of a timeline have stopped; an empty reason: they run."""
        if reason:
            self._stopped[timeline] = reason
        else:
            self._stopped.pop(timeline, None)

    def _stopped_reasons(self) -> Iterator[str]:
        for timeline in sorted(self._stopped)[:STOPPED_NAMED_MAX]:
            yield f"timeline {timeline!r}: {self._stopped[timeline]}"
        if len(self._stopped) > STOPPED_NAMED_MAX:
            yield f"and {len(self._stopped) - STOPPED_NAMED_MAX} more timelines whose consumers fail"

    def witness(self, client: str, drift_ms: float, kind: ClientKind) -> None:
        """Report how far a client's clock is ahead of ours."""
        if client not in self._witnesses and len(self._witnesses) >= WITNESSES_MAX:
            del self._witnesses[next(iter(self._witnesses))]
        self._witnesses[client] = _Witness(self._clock.now_ms(), drift_ms, kind)

    def forget(self, client: str) -> None:
        """Drop the reading of a client that disconnected."""
        self._witnesses.pop(client, None)

    def store_drift(self, drift_ms: float) -> None:
        """Report how far the store's clock is ahead of ours."""
        self.store_drift_ms = drift_ms

    def check(self) -> bool:
        """Check the clocks, about once a second; whether `may_lease` changed."""
        before = self._reasons
        found = list(self._find_doubts())
        self._reasons = tuple(text for _, text in found)
        self._clock_doubts = frozenset(doubt for doubt, _ in found)
        changed = bool(before) != bool(self._reasons)
        if changed:
            log.warning("timelines_state_changed", state=self.state.value, reasons=list(self._reasons))
        return changed

    def _find_doubts(self) -> Iterator[tuple[Doubt, str]]:
        own = () if self._trust is None else self._trust.reasons()
        yield from ((Doubt.BROKER_CLOCK, reason) for reason in own)
        if self._clock.drift_ms and not own:
            yield Doubt.WALL_CLOCK, f"the wall clock jumped by {self._clock.drift_ms} ms"
        store_ms = self.store_drift_ms or 0.0
        if abs(store_ms) > self._drift_ms_max:
            yield Doubt.STORE_CLOCK, f"the store's clock is {store_ms:.0f} ms off"
        clients_ms = self._clients_drift_ms()
        if abs(clients_ms) > self._drift_ms_max:
            yield Doubt.CLIENT_CLOCKS, f"most clients' clocks are {clients_ms:.0f} ms off"

    def _clients_drift_ms(self) -> float:
        heard = [drift_ms for kind in ClientKind for drift_ms in self.client_drifts_ms(kind)]
        return statistics.median(heard) if len(heard) >= WITNESSES_MIN else 0.0

    def client_drifts_ms(self, kind: ClientKind) -> list[float]:
        """How far the clocks of these clients are ahead of ours, for those that reported it recently."""
        oldest = self._clock.now_ms() - WITNESS_AGE_MS
        return [one.drift_ms for one in self._witnesses.values() if one.kind is kind and one.at_ms >= oldest]

    async def ask_store(self, operation: Callable[[], Awaitable[T]], *, reads: bool = False) -> T:
        """Run one operation of the store; while the store keeps failing, most are rejected without a try."""
        if self.sampling and self._rng.randrange(SAMPLE_ONE_IN):
            raise StoreUnavailable(f"the timeline store failed {self._errors_in_row} times in a row; try again later")
        try:
            result = await operation()
        except StoreUnavailable as error:
            self._failed(error, reads=reads)
            raise
        except TimelineError:
            self._errors_in_row = 0
            raise
        except Exception as error:
            self._failed(error, reads=reads)
            raise StoreUnavailable(f"the timeline store failed: {error}") from error
        if self.sampling or (not reads and self._writes.failed_in_row >= ERRORS_IN_ROW):
            log.info("timeline_store_recovered")
        self._errors_in_row = 0
        if not reads:
            self._writes.failed_in_row = 0
        return result

    def _failed(self, error: BaseException, *, reads: bool) -> None:
        self._errors_in_row += 1
        self._last_error = str(error)
        writes = self._writes
        if not reads:
            writes.failed_in_row, writes.failed_ms, writes.error = writes.failed_in_row + 1, self._clock.now_ms(), error
        if ERRORS_IN_ROW in {self._errors_in_row, 0 if reads else writes.failed_in_row}:
            log.error("timeline_store_failing", error=str(error))


class _Writes:
    """The results of the last operations that change the store."""

    __slots__ = ("error", "failed_in_row", "failed_ms")

    def __init__(self) -> None:
        self.failed_in_row = 0
        self.failed_ms = 0
        self.error: BaseException | None = None

    def age_ms(self, clock: Clock) -> int:
        """How long ago the last of them failed."""
        return clock.now_ms() - self.failed_ms
