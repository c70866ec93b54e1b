"""CSV for spreadsheets: only texts that begin like a formula change."""

import csv
import io
import random

import pytest

from tidemill.servers.http.core.spreadsheet_text import guard_formulas

SEED = 7
DANGEROUS = ("=", "+", "-", "@", "\t", "\r")
PIECES = ["=", "+", "-", "@", "\t", "\r", "\n", ",", '"', "'", "a", "1", "", ',"=', '\n"=', "ä"]


def marked(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def as_engine(rows: list[list[str | int]]) -> bytes:
    """CSV as the engine writes it."""
    cells = [[each if isinstance(each, int) else marked(each) for each in row] for row in rows]
    return "".join(",".join(map(str, row)) + "\n" for row in cells).encode()


@pytest.mark.parametrize("start", DANGEROUS)
def test_a_text_that_begins_like_a_formula_gets_an_apostrophe(start: str) -> None:
    assert guard_formulas(as_engine([[f"{start}1+1", "x", f"{start}2"]])) == as_engine(
        [[f"'{start}1+1", "x", f"'{start}2"]]
    )


def test_numbers_keep_their_sign() -> None:
    assert guard_formulas(b'"n"\n-5\n-1,"-1"\n') == b'"n"\n-5\n-1,"\'-1"\n'


def test_other_texts_stay_as_they_are() -> None:
    same = as_engine([["a=b", "x,\n=1", 'say "=1"', ',"=1', "ends with ,", ""], ["ends with\n", "", "", "", "", 1]])
    assert guard_formulas(same) == same


def test_random_texts_are_read_back() -> None:
    chance = random.Random(SEED)
    for _ in range(300):
        rows: list[list[str | int]] = [
            ["".join(chance.choices(PIECES, k=chance.randrange(6))) for _ in range(3)] for _ in range(3)
        ]
        found = list(csv.reader(io.StringIO(guard_formulas(as_engine(rows)).decode(), newline=""), lineterminator="\n"))
        wanted = [[f"'{each}" if str(each).startswith(DANGEROUS) else each for each in row] for row in rows]
        assert found == wanted, rows
