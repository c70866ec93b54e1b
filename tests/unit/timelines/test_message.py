"""Messages: the limits of a batch, and how many fit into one result."""

import pytest

from tidemill.timelines.core import errors
from tidemill.timelines.core.message import (
    BATCH_MESSAGES_MAX,
    DUE_MS_MAX,
    FIND_BYTES_MAX,
    GROUP_CHARS_MAX,
    KEY_BYTES_MAX,
    NewMessage,
    TimedMessage,
    check_group,
    check_new,
    within_bytes,
)

NEW = NewMessage("a", 100, b"12345", 0)


def sized(*sizes: int) -> list[TimedMessage]:
    return [TimedMessage(seq, "a", 1, 1, 0, "", None, 0, 1, 0, size, None) for seq, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "message",
    [
        NEW,
        NEW._replace(key=b""),
        NEW._replace(key=bytes(KEY_BYTES_MAX)),
        NEW._replace(due_ms=0),
        NEW._replace(due_ms=DUE_MS_MAX),
        NEW._replace(id="i" * 200),
        NEW._replace(group="g" * 200),
    ],
)
def test_a_message_at_a_limit_is_allowed(message: NewMessage) -> None:
    check_new([message], 5)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (NEW._replace(body=b"123456"), errors.BodyTooLarge),
        (NEW._replace(key=bytes(KEY_BYTES_MAX + 1)), errors.BodyTooLarge),
        (NEW._replace(due_ms=-1), errors.BadDueTime),
        (NEW._replace(due_ms=DUE_MS_MAX + 1), errors.BadDueTime),
        (NEW._replace(id="i" * 201), errors.BadMessageId),
        (NEW._replace(id=""), errors.BadMessageId),
    ],
)
def test_one_message_beyond_a_limit_refuses_the_batch(message: NewMessage, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_new([NEW, message], 5)


def test_a_batch_has_a_largest_number_of_messages() -> None:
    check_new([NEW] * BATCH_MESSAGES_MAX, 5)
    with pytest.raises(errors.BatchTooLarge):
        check_new([NEW] * (BATCH_MESSAGES_MAX + 1), 5)


@pytest.mark.parametrize(
    ("sizes", "fit"),
    [
        ((), 0),
        ((FIND_BYTES_MAX + 1, 1), 1),
        ((FIND_BYTES_MAX - 1, 1, 0), 3),
        ((FIND_BYTES_MAX - 1, 2), 1),
        ((1, FIND_BYTES_MAX), 1),
    ],
)
def test_a_result_ends_before_its_bodies_are_too_large(sizes: tuple[int, ...], fit: int) -> None:
    messages = sized(*sizes)
    assert list(within_bytes(messages)) == messages[:fit]


@pytest.mark.parametrize("group", ["g" * (GROUP_CHARS_MAX + 1), "a\n"])
def test_a_group_that_cannot_be_stored_is_refused(group: str) -> None:
    with pytest.raises(errors.BadMessageId, match="producer group"):
        check_group(group)
    check_group("g" * GROUP_CHARS_MAX)
