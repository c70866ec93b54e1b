"""Tests with the same id are refused, because only one of them would run."""

import pytest
from tests.support.unique_ids import refuse_repeated


def test_different_ids_are_accepted() -> None:
    refuse_repeated(["test_a.py::test_one", "test_a.py::test_two", "test_b.py::test_one"])


def test_a_repeated_id_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="test_one is the id of several tests"):
        refuse_repeated(["test_a.py::test_one", "test_b.py::test_one", "test_a.py::test_one"])
