"""Refuses tests with the same id. Processes share the tests by their ids, so only one of them would run."""

from collections import Counter
from collections.abc import Iterable

import pytest


def refuse_repeated(nodeids: Iterable[str]) -> None:
    """Raise UsageError if an id belongs to several tests."""
    twice = [nodeid for nodeid, count in Counter(nodeids).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"{twice[0]} is the id of several tests, and only one of them would run; rename them")
