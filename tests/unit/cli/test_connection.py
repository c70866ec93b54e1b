"""Options of the connection to the brokers."""

import pytest

from tidemill.cli.connection import pairs
from tidemill.cli.errors import WrongUse


def test_pairs() -> None:
    assert pairs(["a=1", "b=x=y", "c="], "--config") == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1", ""):
        with pytest.raises(WrongUse, match="is not name=value"):
            pairs([wrong], "--config")
