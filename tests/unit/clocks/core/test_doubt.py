"""Clock doubt, with clocks that a test sets: jumps, restarts, reboots, sleep, other clocks, acceptance."""

import pytest

from tidemill.clocks.core.doubt import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    ClockDoubt,
    ClockVerdict,
    DoubtKind,
    DoubtLimits,
    LastTrusted,
    Reading,
)

NOW_MS = 1_700_000_000_000
LIMITS = DoubtLimits()


class Machine:
    """A machine with a wall clock that can be set and a boot clock that cannot."""

    def __init__(
        self,
        before: LastTrusted | None = None,
        *,
        wall_ms: int = NOW_MS,
        boot_ms: int = HOUR_MS,
        limits: DoubtLimits = LIMITS,
    ) -> None:
        self.wall_ms, self.boot_ms, self.boot_id = wall_ms, boot_ms, "boot-1"
        self.doubt = ClockDoubt(limits, wall_ms, boot_ms, self.boot_id, before)

    def look(self, passed_ms: int = 1_000, *, jump_ms: int = 0) -> ClockVerdict:
        self.boot_ms += passed_ms
        self.wall_ms += passed_ms + jump_ms
        return self.doubt.look(self.wall_ms, self.boot_ms)

    def restart(self, off_ms: int, *, jump_ms: int = 0, rebooted: bool = False) -> ClockVerdict:
        seen = self.doubt.seen()
        self.boot_ms = 10_000 if rebooted else self.boot_ms + off_ms
        self.boot_id = "boot-2" if rebooted else self.boot_id
        self.wall_ms += off_ms + jump_ms
        self.doubt = ClockDoubt(LIMITS, self.wall_ms, self.boot_ms, self.boot_id, seen)
        return self.doubt.verdict()

    def read(self, kind: DoubtKind, target: str, ahead_ms: int, *, trusted: bool = True, error_ms: int = 5) -> None:
        self.doubt.read(Reading(kind, target, self.wall_ms + ahead_ms, error_ms, self.boot_ms, trusted))


def kinds(verdict: ClockVerdict) -> list[DoubtKind]:
    return [reason.kind for reason in verdict.reasons]


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, -30 * DAY_MS, 61_000, -61_000])
def test_a_jump_is_in_doubt_until_the_clock_is_set_back(jump_ms: int) -> None:
    machine = Machine()
    assert machine.look().trusted
    verdict = machine.look(jump_ms=jump_ms)
    assert kinds(verdict) == [DoubtKind.JUMP]
    assert str(jump_ms) in verdict.reasons[0].text
    assert machine.doubt.steady_ms == machine.wall_ms - jump_ms
    assert machine.look(jump_ms=-jump_ms).trusted


@pytest.mark.parametrize("sign", [1, -1])
def test_the_limit_of_a_jump_is_still_trusted(sign: int) -> None:
    assert Machine().look(jump_ms=sign * LIMITS.jump_ms).trusted
    assert not Machine().look(jump_ms=sign * (LIMITS.jump_ms + 1)).trusted


@pytest.mark.parametrize(("beyond_ms", "is_same"), [(0, True), (1, False)])
def test_a_restart_inherits_the_age_of_a_change_up_to_the_limit_of_a_jump(beyond_ms: int, is_same: bool) -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    machine.look(HOUR_MS)
    assert not machine.restart(0, jump_ms=LIMITS.jump_ms + beyond_ms).trusted
    assert (machine.doubt.seen().stood_ms >= HOUR_MS) is is_same


def test_small_steps_are_trusted_and_do_not_add_up_in_a_day() -> None:
    machine = Machine()
    for _ in range(24):
        assert machine.look(HOUR_MS, jump_ms=1_000).trusted
    assert machine.look(jump_ms=30_000).trusted
    assert not machine.look(jump_ms=40_000).trusted, "two steps in two seconds are one jump of more than a minute"


def test_a_slow_drift_is_followed_however_often_the_clocks_are_compared() -> None:
    machine = Machine(limits=LIMITS._replace(jump_ms=100))
    for look in range(1_000):
        assert machine.look(700, jump_ms=int(look % 3 == 0)).trusted, f"look {look}"


def test_a_drift_of_more_than_one_in_a_thousand_becomes_a_jump() -> None:
    machine = Machine(limits=LIMITS._replace(jump_ms=100))
    assert all(machine.look(1_000, jump_ms=2).trusted for _ in range(90))
    assert not all(machine.look(1_000, jump_ms=2).trusted for _ in range(20))


@pytest.mark.parametrize(
    ("jump_ms", "length"),
    [(DAY_MS + 2 * HOUR_MS + 3 * MINUTE_MS, "+1 d 2 h"), (HOUR_MS + 1, "+1 h 1 ms"), (-2 * MINUTE_MS, "-2 min")],
)
def test_the_length_of_a_jump_has_two_units(jump_ms: int, length: str) -> None:
    assert f"({length})" in Machine().look(jump_ms=jump_ms).reasons[0].text


def test_a_broker_that_did_not_doubt_has_no_age_of_a_doubt() -> None:
    seen = LastTrusted(NOW_MS, "boot-1", HOUR_MS)
    assert (seen.doubted_ms, seen.stood_ms, seen.offset_ms) == (0, 0, 0)


def test_sleep_is_no_jump() -> None:
    machine = Machine()
    assert machine.look(10 * HOUR_MS).trusted  # the boot clock goes on while the machine sleeps


def test_a_lasting_jump_is_accepted_after_the_reported_time() -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    verdict = machine.look(HOUR_MS)
    assert verdict.accepted_in_ms == 5 * HOUR_MS
    assert verdict.doubted_ms == HOUR_MS
    assert kinds(machine.look(HOUR_MS, jump_ms=-DAY_MS)) == [DoubtKind.JUMP]
    assert not machine.look(5 * HOUR_MS).trusted, "another jump begins the time again"
    assert machine.look(2 * HOUR_MS).trusted
    assert machine.look().trusted


def test_an_operator_accepts_a_jump() -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    machine.doubt.accept()
    assert machine.look().trusted
    assert not machine.look(jump_ms=-30 * DAY_MS).trusted


@pytest.mark.parametrize("off_ms", [1_000, 30 * DAY_MS])
def test_a_restart_in_the_same_boot_is_trusted_however_long_it_took(off_ms: int) -> None:
    machine = Machine()
    assert machine.restart(off_ms).trusted
    assert machine.look().trusted


@pytest.mark.parametrize("jump_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_a_jump_while_the_broker_was_stopped_is_noticed(jump_ms: int) -> None:
    machine = Machine()
    verdict = machine.restart(1_000, jump_ms=jump_ms)
    assert kinds(verdict) == [DoubtKind.JUMP]
    assert "while the broker was stopped" in verdict.reasons[0].text
    assert machine.look(jump_ms=-jump_ms).trusted


def test_after_a_reboot_the_clock_must_be_within_the_longest_stop() -> None:
    assert Machine().restart(2 * DAY_MS, rebooted=True).trusted
    assert kinds(Machine().restart(30 * DAY_MS, rebooted=True)) == [DoubtKind.LATER]
    assert kinds(Machine().restart(0, jump_ms=-2 * MINUTE_MS, rebooted=True)) == [DoubtKind.EARLIER]
    machine = Machine()
    machine.restart(30 * DAY_MS, rebooted=True)
    assert not machine.doubt.has_base
    assert machine.look(LIMITS.accept_ms).trusted
    assert machine.doubt.has_base


def test_a_doubt_and_its_time_survive_restarts() -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    machine.look(3 * HOUR_MS)
    verdict = machine.restart(1_000)
    assert kinds(verdict) == [DoubtKind.JUMP]
    assert verdict.doubted_ms == 3 * HOUR_MS
    assert machine.look(3 * HOUR_MS).trusted
    later = Machine()
    later.restart(30 * DAY_MS, rebooted=True)
    later.look(HOUR_MS)
    assert kinds(later.restart(1_000)) == [DoubtKind.LATER]
    assert not later.doubt.has_base


@pytest.mark.parametrize("rebooted", [False, True])
def test_another_wrong_time_after_a_restart_waits_for_its_whole_time(rebooted: bool) -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    machine.look(5 * HOUR_MS + 59 * MINUTE_MS)
    verdict = machine.restart(1_000, jump_ms=30 * DAY_MS, rebooted=rebooted)
    assert verdict.accepted_in_ms == LIMITS.accept_ms
    assert verdict.doubted_ms == 5 * HOUR_MS + 59 * MINUTE_MS, "it has been in doubt all the time"
    assert not machine.look(LIMITS.accept_ms - 1).trusted
    assert machine.look(1).trusted


def test_a_restart_keeps_how_long_the_last_change_has_stood() -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    machine.look(5 * HOUR_MS)
    machine.look(HOUR_MS // 2, jump_ms=DAY_MS)
    machine.look(HOUR_MS)
    verdict = machine.restart(1_000)
    assert verdict.accepted_in_ms == 5 * HOUR_MS
    assert verdict.doubted_ms == 6 * HOUR_MS + HOUR_MS // 2


def test_the_broker_that_is_apart_from_most_others_is_in_doubt() -> None:
    machine = Machine()
    machine.read(DoubtKind.BROKERS, "broker 2", 0)
    machine.read(DoubtKind.BROKERS, "broker 3", DAY_MS)
    assert machine.look().trusted, "one of two others proves nothing"
    machine.read(DoubtKind.BROKERS, "broker 2", DAY_MS)
    verdict = machine.look()
    assert kinds(verdict) == [DoubtKind.BROKERS]
    assert "broker 2 by +1 d" in verdict.reasons[0].text
    assert verdict.accepted_in_ms is None
    assert not machine.look(30_000).trusted
    machine.doubt.accept()
    machine.read(DoubtKind.BROKERS, "broker 2", DAY_MS)
    assert machine.look().trusted, "an operator has accepted this difference"


@pytest.mark.parametrize("kind", [DoubtKind.COORDINATION, DoubtKind.STORAGE])
def test_coordination_and_storage_differ(kind: DoubtKind) -> None:
    machine = Machine()
    machine.read(kind, "etcd", 61_000, error_ms=2_000)
    assert machine.look().trusted, "the round trip explains it"
    machine.read(kind, "etcd", 63_000, error_ms=2_000)
    assert kinds(machine.look()) == [kind]
    machine.read(kind, "etcd", 0)
    assert machine.look().trusted
    machine.read(kind, "etcd", DAY_MS)
    assert not machine.look().trusted
    assert machine.look(2 * MINUTE_MS).trusted, "a clock that is not read any more says nothing"


def test_brokers_that_trust_their_clocks_confirm_a_jump() -> None:
    machine = Machine()
    machine.read(DoubtKind.BROKERS, "broker 2", 0)
    verdict = machine.look(jump_ms=30 * DAY_MS)
    assert DoubtKind.JUMP in kinds(verdict), "what was read before the jump does not agree with what came after"
    machine.read(DoubtKind.BROKERS, "broker 2", 0, trusted=False)
    assert kinds(machine.look()) == [DoubtKind.JUMP], "it saw the same jump, and is in doubt itself"
    machine.read(DoubtKind.BROKERS, "broker 2", 0)
    assert machine.look().trusted


def test_a_directory_without_a_record_is_compared_with_its_files() -> None:
    files = LastTrusted(NOW_MS - 30 * DAY_MS, "", 0)
    assert kinds(Machine(files).doubt.verdict()) == [DoubtKind.LATER]
    assert Machine(LastTrusted(NOW_MS - HOUR_MS, "", 0)).doubt.verdict().trusted
    assert Machine(None).doubt.verdict().trusted


@pytest.mark.parametrize(
    ("jump_ms", "length"),
    [(65_000, "+1 min 5 s"), (7_200_000, "+2 h"), (172_800_000, "+2 d"), (-120_001, "-2 min 1 ms")],
)
def test_the_units_of_a_length_have_their_usual_sizes(jump_ms: int, length: str) -> None:
    assert f"({length})" in Machine().look(jump_ms=jump_ms).reasons[0].text


def test_durations_have_a_base_after_a_jump_but_not_when_other_clocks_differ() -> None:
    machine = Machine()
    assert machine.doubt.has_base
    machine.look(jump_ms=30 * DAY_MS)
    assert machine.doubt.has_base, "the time before the jump is known"
    another = Machine()
    another.read(DoubtKind.STORAGE, "disk", DAY_MS)
    another.look()
    assert not another.doubt.has_base


def test_half_of_the_other_brokers_confirm_nothing() -> None:
    machine = Machine()
    machine.look(jump_ms=30 * DAY_MS)
    machine.read(DoubtKind.BROKERS, "broker 2", 0)
    machine.read(DoubtKind.BROKERS, "broker 3", 0, trusted=False)
    assert kinds(machine.look()) == [DoubtKind.JUMP]
    machine.read(DoubtKind.BROKERS, "broker 4", 0)
    assert machine.look().trusted
