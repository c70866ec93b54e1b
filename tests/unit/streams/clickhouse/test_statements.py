"""Pieces of SQL that are made of data."""

import numpy as np

from tidemill.streams.clickhouse.statements import bits, text


def test_literals_are_quoted() -> None:
    assert text("it's a \\ 'name'") == "'it\\'s a \\\\ \\'name\\''"


def test_chosen_offsets_are_bits() -> None:
    chosen = bits(100, 117, np.array([99, 100, 103, 116, 117]))
    assert "unhex('090001')" in chosen
