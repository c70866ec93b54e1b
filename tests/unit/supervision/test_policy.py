"""When a failed task starts again, and how long it counts as failing."""

from tidemill.supervision.policy import PAUSE_S_MAX, PAUSE_S_MIN, REASON_CHARS_MAX, STABLE_S, TaskState, describe


def test_pause_doubles_with_each_failure_in_a_row_up_to_a_limit() -> None:
    state, pauses = TaskState(0.0), []
    for _ in range(20):
        state = state.failed(ValueError("x"), 0.0)
        pauses.append(state.pause_s())
        state = state.restarted(0.0)
    assert pauses[:4] == [PAUSE_S_MIN, 2 * PAUSE_S_MIN, 4 * PAUSE_S_MIN, 8 * PAUSE_S_MIN]
    assert pauses[-1] == PAUSE_S_MAX


def test_a_stable_run_ends_the_row() -> None:
    state = TaskState(0.0).failed(ValueError("x"), 1.0).restarted(2.0).failed(ValueError("x"), 3.0)
    assert state.failures == 2
    state = state.restarted(4.0)
    assert state.is_failing(4.0 + STABLE_S / 2)
    assert not state.is_failing(4.0 + STABLE_S)
    assert state.failed(ValueError("x"), 4.0 + STABLE_S).failures == 1


def test_a_task_that_waits_is_failing_however_long_it_waits() -> None:
    assert not TaskState(0.0).is_failing(0.0)
    assert TaskState(0.0).failed(ValueError("x"), 1.0).is_failing(1_000.0)


def test_an_error_is_one_short_line() -> None:
    assert describe(ValueError("two\nlines")) == "ValueError: two lines"
    assert describe(KeyError()) == "KeyError"
    assert len(describe(ValueError("x" * 1_000))) == REASON_CHARS_MAX
