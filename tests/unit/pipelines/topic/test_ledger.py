"""The ledger of a sink: what its entries mean, and how they are kept in texts of a limited length."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.pipelines.errors import LayoutChanged, PipelineError
from tidemill.pipelines.topic.core.ledger import Branch, LedgerEntry, decided, pieces_of, read_entry, write_entry

METADATA_BYTES_MAX = 4096
NUMBERS = st.integers(0, 2**62)
BRANCHES = st.builds(Branch, st.from_regex(r"\d{1,5}(-\d{1,3})?", fullmatch=True), NUMBERS, st.integers(0, 32767))
ENTRIES = st.builds(
    LedgerEntry,
    NUMBERS,
    st.uuids().map(str),
    NUMBERS,
    st.integers(0, 10_000),
    done=st.booleans(),
    kept=st.lists(st.integers(0, 10_000)).map(tuple),
    branches=st.lists(BRANCHES, max_size=300).map(tuple),
)
FIRST = LedgerEntry(4, "q", 7, 2, branches=(Branch("0", 10, 1), Branch("1-3", 11, 5)))


@settings(max_examples=50, deadline=None)
@given(ENTRIES)
def test_entries_are_read_as_written(entry: LedgerEntry) -> None:
    pieces = write_entry(entry)
    assert pieces_of(pieces[0]) == len(pieces)
    assert all(len(piece.encode()) <= METADATA_BYTES_MAX for piece in pieces)
    assert read_entry(entry.number, pieces) == entry


@pytest.mark.parametrize("text", ["", "0/1 ", "0/1 done query=a", "hello"])
def test_an_invalid_ledger_entry_is_rejected(text: str) -> None:
    with pytest.raises(PipelineError, match="the sink's ledger cannot be read"):
        read_entry(1, [text])


def test_an_entry_is_done_when_every_branch_was_committed() -> None:
    done = FIRST.settled({0, 1})
    assert (done.number, done.done, done.kept, done.branches) == (5, True, (), ())
    assert done.covers("q", 7)
    assert done.covers("q", 6)
    assert not done.covers("q", 8)
    assert not done.covers("another", 7)
    assert done.kept_of("q", 7) == ()


def test_an_entry_that_lost_branches_keeps_the_others() -> None:
    half = FIRST.settled({1})
    assert not half.covers("q", 7)
    assert half.kept_of("q", 7) == (1,)
    assert half.kept_of("q", 8) == ()
    again = decided(half, "q", 7, 2, [Branch("0", 10, 9)])
    assert again.settled(set()).kept == (1,)
    assert again.settled({0}).done
    with pytest.raises(LayoutChanged, match="micro-batch 7 was written in part by 2 tasks and now has 3"):
        decided(half, "q", 7, 3, [])


def test_an_entry_that_lost_all_branches_asks_nothing_of_the_next() -> None:
    nothing = FIRST.settled(())
    assert not nothing.covers("q", 7)
    assert decided(nothing, "q", 7, 5, FIRST.branches) == replace(FIRST, number=6, tasks=5)
    assert decided(None, "q", 7, 2, FIRST.branches) == replace(FIRST, number=1)
