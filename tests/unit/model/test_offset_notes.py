"""Which committed offsets are notes of pipelines."""

import pytest

from tidemill.model.offset_notes import is_note
from tidemill.pipelines.lake.core.replay import positions_to_texts
from tidemill.pipelines.topic.core.ledger import Branch, LedgerEntry, write_entry


@pytest.mark.parametrize("branches", [0, 3, 400])
def test_every_piece_of_a_ledger_is_a_note(branches: int) -> None:
    entry = LedgerEntry(7, "q1", 3, 400, branches=tuple(Branch(f"{each}-x", 5, 0) for each in range(branches)))
    pieces = write_entry(entry)
    assert len(pieces) == 1 or branches == 400
    assert all(is_note("tidemill-q1", piece) for piece in pieces)


@pytest.mark.parametrize("positions", [{0: 5}, {0: 5, 1: 77, 2: 0}])
def test_positions_of_a_replay_are_notes(positions: dict[int, int]) -> None:
    for text in positions_to_texts(positions, 1).values():
        assert is_note("tidemill-replay-ab12", text)


@pytest.mark.parametrize("metadata", ["", "note", "1/2", "0/x a", "0=1 note", "app 0/1 done"])
def test_other_metadata_is_no_note(metadata: str) -> None:
    assert not is_note("tidemill-q1", metadata)


def test_groups_of_clients_have_no_notes() -> None:
    assert not is_note("shop-revenue", "0/1 done query=q1 batch=3 tasks=1 kept= branches=")
