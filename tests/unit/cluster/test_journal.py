"""Two damaged copies of the coordination journal, read together."""

from pathlib import Path

import pytest

from tidemill.cluster.interface import Changed
from tidemill.cluster.journal import JournalDamaged, acknowledged, encode_line, merged, read_lines

DAMAGE = b"damage\n"


def change(revision: int, key: str = "topics/orders") -> Changed:
    return Changed(key, b"x", revision)


def test_the_last_line_of_a_rewritten_file_hides_no_change() -> None:
    rewritten = b"".join(map(encode_line, [change(5, "topics/a"), change(9), Changed("", None, 9)]))
    found = merged(read_lines(DAMAGE + rewritten), read_lines(rewritten))
    assert [(each.key, each.revision) for each in found] == [("topics/a", 5), ("topics/orders", 9), ("", 9)]


def test_a_short_journal_next_to_a_damaged_copy_stops_the_start() -> None:
    journal = read_lines(encode_line(change(1)))
    copy = read_lines(encode_line(change(1)) + DAMAGE + encode_line(change(3)))
    with pytest.raises(JournalDamaged, match="lacks acknowledged changes"):
        acknowledged(journal, copy, Path("data/coordination.journal"))
    whole = read_lines(b"".join(encode_line(change(number)) for number in (1, 2, 3)))
    assert len(acknowledged(whole, copy, Path("data/coordination.journal"))) == 3
