"""Batches of the journal are applied only if nothing is missing between them."""

import pytest

from tidemill.timelines.core.journal_entries import JournalBatch, JournalPosition, follows


def batch(first: int, count: int) -> JournalBatch:
    return JournalBatch([b"entry"] * count, JournalPosition(first + count, 1))


@pytest.mark.parametrize(
    ("offset", "batches", "is_whole"),
    [
        (0, [], True),
        (7, [batch(7, 3), batch(10, 1)], True),
        (7, [batch(9, 3)], False),  # the journal was trimmed
        (7, [batch(7, 3), batch(11, 1)], False),
        (7, [batch(6, 3)], False),
    ],
)
def test_batches_follow_an_offset_without_a_gap(offset: int, batches: list[JournalBatch], is_whole: bool) -> None:
    assert follows(offset, batches) == is_whole
