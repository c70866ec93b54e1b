"""Decides whether the wall clock is trusted or in doubt, and why.

Nothing may be deleted by time while the clock is in doubt. Two kinds of evidence count:

- This broker's own past. The wall clock must agree with the elapsed time of a clock that cannot be set. Within one boot
  of the machine this is exact, also across a restart of the broker. After a reboot only a range is known: not before
  the last time in the data directory, and not later than `stop_ms` after it.
- Other clocks: brokers, coordination, storage. If a majority of the other brokers differs, this broker is in doubt. One
  broker alone proves nothing, unless it is the only one.

Timestamps in records are not evidence, because clients write them. One client could stop retention permanently.

A doubt from the broker's own past ends in one of four ways: the clock agrees again, a majority of brokers with trusted
clocks agrees with it, an operator accepts it, or it stays unchanged for `accept_ms`. A disagreement with other clocks
does not end by waiting. It ends when the clocks agree, or when an operator accepts the difference.

All times are milliseconds. `boot_ms` is a clock that cannot be set and that continues while the machine sleeps.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

SLEW_PER_MILLE = 1
"""Differences that grow slower than this are followed, so that many small steps of a time daemon never add up."""
READING_AGE_MS = 60_000
"""A reading of another clock that is older than this is ignored."""
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


class DoubtKind(StrEnum):
    """Why the clock is in doubt."""

    JUMP = "jump"
    EARLIER = "earlier"
    LATER = "later"
    BROKERS = "brokers"
    COORDINATION = "coordination"
    STORAGE = "storage"


class DoubtLimits(NamedTuple):
    """From which difference on the clock is in doubt, and after how long an unchanged doubt is accepted."""

    jump_ms: int = MINUTE_MS
    difference_ms: int = MINUTE_MS
    stop_ms: int = 3 * DAY_MS
    accept_ms: int = 6 * HOUR_MS


class LastTrusted(NamedTuple):
    """The record in the data directory: the last trusted wall time, and the boot clock at that moment."""

    wall_ms: int
    boot_id: str
    boot_ms: int
    doubted_ms: int = 0
    """How long the clock had been in doubt when this was written. 0 while it was trusted."""
    is_earliest: bool = False
    """Whether `wall_ms` is only the earliest possible time, because the clock was in doubt since a reboot."""
    stood_ms: int = 0
    """How long the doubtful change was unchanged. Shorter than `doubted_ms` after a second change."""
    offset_ms: int = 0
    """The doubtful change: how far the wall clock was ahead of the expected time."""


class Reading(NamedTuple):
    """Another clock: `their_ms` at our `boot_ms`, plus or minus `error_ms` (half of the round trip)."""

    kind: DoubtKind
    target: str
    their_ms: int
    error_ms: int
    boot_ms: int
    is_trusted: bool = True
    """Whether the other side trusts its own clock."""


class Difference(NamedTuple):
    """How far another clock is ahead of ours."""

    kind: DoubtKind
    target: str
    offset_ms: int
    error_ms: int


class Reason(NamedTuple):
    """One reason for doubt."""

    kind: DoubtKind
    text: str


class ClockVerdict(NamedTuple):
    """The current conclusion from the evidence."""

    reasons: tuple[Reason, ...]
    doubted_ms: int
    """How long the clock has been in doubt."""
    accepted_in_ms: int | None
    """When the clock is accepted if nothing changes. None while it is trusted or only an operator can accept it."""

    @property
    def trusted(self) -> bool:
        """Whether the wall clock may be used for deletion."""
        return not self.reasons


class ClockDoubt:
    """The evidence about one wall clock."""

    def __init__(
        self, limits: DoubtLimits, wall_ms: int, boot_ms: int, boot_id: str, before: LastTrusted | None
    ) -> None:
        self._limits = limits
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._boot_id = boot_id
        self._expected_ms = wall_ms
        self._early_ms = self._late_ms = limits.jump_ms
        self._rebooted = False
        self._started = before is not None
        self._readings: dict[str, Reading] = {}
        self._accepted: dict[str, int] = {}
        self._own: Reason | None = None
        self._others: tuple[Reason, ...] = ()
        self._since_ms = boot_ms
        self._stands_ms = boot_ms
        self._offset_ms = 0
        self._slew_rest = 0
        if before is not None:
            self._expect(before)
        verdict = self.look(wall_ms, boot_ms)
        if before is not None and verdict.reasons:
            self._since_ms -= before.doubted_ms
            # Only the same change inherits its age, because the clock may have been set to another wrong time
            # meanwhile.
            if abs(self._offset_ms - before.offset_ms) <= limits.jump_ms:
                self._stands_ms -= before.stood_ms
                self._offset_ms = before.offset_ms

    def _expect(self, before: LastTrusted) -> None:
        self._expected_ms = before.wall_ms
        same_boot = bool(before.boot_id) and before.boot_id == self._boot_id and before.boot_ms <= self._boot_ms
        if same_boot:
            self._expected_ms += self._boot_ms - before.boot_ms
        if before.is_earliest or not same_boot:
            self._rebooted = True
            self._late_ms = self._limits.stop_ms

    @property
    def steady_ms(self) -> int:
        """Return the time of day without the doubtful change. This is the wall clock while it is trusted."""
        return self._wall_ms if self._own is None else self._expected_ms

    @property
    def has_base(self) -> bool:
        """Whether durations can be added to a right time of day. Not after a reboot, nor when other clocks differ."""
        return not self._others and (self._own is None or not self._rebooted)

    def seen(self) -> LastTrusted:
        """Return the record for the data directory."""
        if self._own is None:
            return LastTrusted(self._wall_ms, self._boot_id, self._boot_ms)
        return LastTrusted(
            self._expected_ms,
            self._boot_id,
            self._boot_ms,
            max(1, self._doubted_ms()),
            self._rebooted,
            self._stood_ms(),
            self._offset_ms,
        )

    def read(self, reading: Reading) -> None:
        """Record a reading of another clock."""
        self._readings[reading.target] = reading

    def look(self, wall_ms: int, boot_ms: int) -> ClockVerdict:
        """Compare the wall clock with all evidence."""
        was_trusted = self._own is None and not self._others
        passed_ms = max(0, boot_ms - self._boot_ms)
        self._boot_ms += passed_ms
        self._wall_ms = wall_ms
        self._expected_ms += passed_ms
        self._judge_past(passed_ms)
        self._others = tuple(self._judge_others())
        if was_trusted and (self._own is not None or self._others):
            self._since_ms = self._boot_ms
        if self._own is not None and (self._confirmed() or self._stood_ms() >= self._limits.accept_ms):
            self._follow()
        return self.verdict()

    def verdict(self) -> ClockVerdict:
        """Return the result of the last `look`."""
        reasons = (*(() if self._own is None else (self._own,)), *self._others)
        if not reasons:
            return ClockVerdict((), 0, None)
        left_ms = None if self._others else max(0, self._limits.accept_ms - self._stood_ms())
        return ClockVerdict(reasons, self._doubted_ms(), left_ms)

    def accept(self) -> None:
        """Trust the wall clock, because an operator confirmed it."""
        self._follow()
        self._accepted = {one.target: one.offset_ms for one in self.differences()}
        self._others = ()

    def differences(self) -> list[Difference]:
        """Return every other clock with a recent reading, by name."""
        oldest_ms = self._boot_ms - READING_AGE_MS
        self._readings = {name: one for name, one in self._readings.items() if one.boot_ms >= oldest_ms}
        return [self._difference(one) for _, one in sorted(self._readings.items())]

    def _difference(self, reading: Reading) -> Difference:
        # The reading is extrapolated to now. Our own jump after the reading shows at once, and never as agreement.
        their_ms = reading.their_ms + self._boot_ms - reading.boot_ms
        return Difference(reading.kind, reading.target, their_ms - self._wall_ms, reading.error_ms)

    def _judge_past(self, passed_ms: int) -> None:
        offset_ms = self._wall_ms - self._expected_ms
        if -self._early_ms <= offset_ms <= self._late_ms:
            if self._own is not None or self._started:
                self._follow()
            # The remainder of the last look is added. Looks may be so frequent that each alone allows less than 1 ms.
            most_ms, self._slew_rest = divmod(passed_ms * SLEW_PER_MILLE + self._slew_rest, 1000)
            self._expected_ms += max(-most_ms, min(most_ms, self._wall_ms - self._expected_ms))
            return
        if self._own is None or abs(offset_ms - self._offset_ms) > self._limits.jump_ms:
            self._stands_ms = self._boot_ms
            self._offset_ms = offset_ms
        self._own = self._reason(self._offset_ms)

    def _reason(self, offset_ms: int) -> Reason:
        if not self._rebooted:
            when = " while the broker was stopped" if self._started else ""
            return Reason(DoubtKind.JUMP, f"the wall clock jumped by {offset_ms} ms ({_length(offset_ms)}){when}")
        if offset_ms < 0:
            text = f"the wall clock is {_length(offset_ms)} before the last time recorded in the data directory"
            return Reason(DoubtKind.EARLIER, text)
        text = f"the wall clock is {_length(offset_ms)} after the last time recorded in the data directory"
        return Reason(DoubtKind.LATER, text)

    def _judge_others(self) -> Iterable[Reason]:
        differences = self.differences()
        brokers = [one for one in differences if one.kind is DoubtKind.BROKERS]
        apart = [one for one in brokers if self._is_apart(one)]
        if 2 * len(apart) > len(brokers):
            named = ", ".join(f"{one.target} by {_length(one.offset_ms)}" for one in apart)
            yield Reason(DoubtKind.BROKERS, f"the clocks of other brokers differ: {named}")
        for one in differences:
            if one.kind is not DoubtKind.BROKERS and self._is_apart(one):
                yield Reason(one.kind, f"the clock of {one.target} differs by {_length(one.offset_ms)}")

    def _is_apart(self, one: Difference) -> bool:
        known_ms = self._accepted.get(one.target, 0)
        return abs(one.offset_ms - known_ms) - one.error_ms > self._limits.difference_ms

    def _confirmed(self) -> bool:
        """Whether most other brokers trust their clocks and agree with ours."""
        brokers = [one for one in self._readings.values() if one.kind is DoubtKind.BROKERS]
        agree = [one for one in brokers if one.is_trusted and not self._is_apart(self._difference(one))]
        return bool(brokers) and 2 * len(agree) > len(brokers) and not self._others

    def _follow(self) -> None:
        """Trust the wall clock from here on."""
        self._expected_ms = self._wall_ms
        self._early_ms = self._late_ms = self._limits.jump_ms
        self._rebooted = self._started = False
        self._own = None

    def _doubted_ms(self) -> int:
        return self._boot_ms - self._since_ms

    def _stood_ms(self) -> int:
        return self._boot_ms - self._stands_ms


def _length(ms: int) -> str:
    """Return a signed duration in two units: `+30 d 2 h`, `-5 min 3 s`."""
    sign, rest = ("-" if ms < 0 else "+"), abs(ms)
    units = (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", 1_000), ("ms", 1))
    parts = []
    for name, length_ms in units:
        count, rest = divmod(rest, length_ms)
        if count:
            parts.append(f"{count} {name}")
    return sign + (" ".join(parts[:2]) or "0 ms")
