"""Commands on messages: each field up to its limit, and none of a batch is taken when one field is beyond."""

import pytest

from tidemill.timelines.core.errors import BadDueTime, BadLease, BadMessageId, BatchTooLarge
from tidemill.timelines.core.lease import (
    Cancel,
    Command,
    Complete,
    Extend,
    Move,
    MoveToTimeline,
    Release,
    check_commands,
)

NOW_MS = 1_700_000_000_000
LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
LONGEST = "i" * 200
DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize(
    "command",
    [
        Release(1, 2, 0),
        Release(1, 2, LAST_MS),
        Complete(1, 2),
        Extend(1, 2, NOW_MS + 1),
        Extend(1, 2, NOW_MS + 7 * DAY_MS),
        Move(LONGEST, LAST_MS, LONGEST),
        Move("i", 0, ""),
        Cancel(LONGEST, LONGEST),
        Cancel("i"),
        MoveToTimeline(1, 2, "t", LONGEST),
        MoveToTimeline(1, 2, "t", ""),
    ],
)
def test_a_command_up_to_its_limits_is_taken(command: Command) -> None:
    check_commands([command] * 10_000, NOW_MS)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (Release(1, 2, -1), BadDueTime),
        (Release(1, 2, LAST_MS + 1), BadDueTime),
        (Extend(1, 2, NOW_MS), BadLease),
        (Extend(1, 2, NOW_MS - 1), BadLease),
        (Extend(1, 2, NOW_MS + 7 * DAY_MS + 1), BadLease),
        (Move("", 0), BadMessageId),
        (Move(LONGEST + "i", 0), BadMessageId),
        (Move("a\nb", 0), BadMessageId),
        (Move("i", -1), BadDueTime),
        (Move("i", LAST_MS + 1), BadDueTime),
        (Move("i", 0, LONGEST + "i"), BadMessageId),
        (Cancel(""), BadMessageId),
        (Cancel(LONGEST + "i"), BadMessageId),
        (Cancel("i", "\x00"), BadMessageId),
        (MoveToTimeline(1, 2, "t", LONGEST + "i"), BadMessageId),
    ],
)
def test_a_command_beyond_a_limit_rejects_the_batch(command: Command, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_commands([Complete(1, 2), command, Complete(3, 4)], NOW_MS)


def test_a_batch_has_at_most_ten_thousand_commands() -> None:
    with pytest.raises(BatchTooLarge, match="10001 entries in one batch; at most 10000"):
        check_commands([Complete(1, 2)] * 10_001, NOW_MS)
