"""Events that clients repeat are logged once in a while, and not too many in all."""

from tidemill.security.core.event_limiter import EVENTS_PER_S, REMEMBERED_EVENTS_MAX, REPEAT_S, EventLimiter


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_same_event_is_logged_once_in_a_while_with_its_count() -> None:
    clock = Clock()
    limiter = EventLimiter(clock)
    assert limiter.admit(("login", "a")) == {}
    assert [limiter.admit(("login", "a")) for _ in range(3)] == [None] * 3
    assert limiter.admit(("login", "b")) == {}
    clock.now_s += REPEAT_S - 0.5
    assert limiter.admit(("login", "a")) is None
    clock.now_s += 0.5
    assert limiter.admit(("login", "a")) == {"repeated": 4}
    clock.now_s += REPEAT_S
    assert limiter.admit(("login", "a")) == {}


def test_events_of_a_second_are_bounded_and_the_next_one_counts_the_rest() -> None:
    clock = Clock()
    limiter = EventLimiter(clock)
    found = [limiter.admit((number,)) for number in range(EVENTS_PER_S + 7)]
    assert found == [{}] * EVENTS_PER_S + [None] * 7
    clock.now_s += 1
    assert limiter.admit(("next",)) == {"left_out": 7}
    assert limiter.admit(("another",)) == {}


def test_events_whose_time_is_over_are_forgotten_first() -> None:
    clock = Clock()
    limiter = EventLimiter(clock)
    for number in range(REMEMBERED_EVENTS_MAX):
        clock.now_s += 1 / EVENTS_PER_S
        limiter.admit((number,))
    clock.now_s += 1
    assert limiter.admit(("new",)) == {}
    assert len(limiter._recent) < REMEMBERED_EVENTS_MAX
    assert limiter.admit((REMEMBERED_EVENTS_MAX - 1,)) is None, "it was logged a moment ago"


def test_memory_is_bounded_when_no_time_is_over() -> None:
    clock = Clock()
    limiter = EventLimiter(clock)
    for number in range(REMEMBERED_EVENTS_MAX):
        clock.now_s = 1_000.0 + number // EVENTS_PER_S / 1_000
        limiter._remember((number,), clock.now_s)
    limiter._remember(("new",), clock.now_s)
    assert set(limiter._recent) == {("new",)}
