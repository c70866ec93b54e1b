"""A new client gets a place from the address that holds the most; an address gets none from itself or from equals."""

import pytest

from tidemill.servers.http.core.fair_share import connection_to_end


@pytest.mark.parametrize(
    ("hosts", "newcomer", "index"),
    [
        (["a", "a", "a"], "b", 0),
        (["b", "a", "a", "a"], "b", 1),
        (["b", "a", "a"], "b", None),
        (["a", "a", "a"], "a", None),
        (["a", "b", "c"], "d", None),
        (["a", "a", "b"], "c", 0),
        ([], "a", None),
    ],
)
def test_the_connection_that_ends(hosts: list[str], newcomer: str, index: int | None) -> None:
    assert connection_to_end(hosts, newcomer) == index
