"""The tables of the state of brokers: the rows of share groups that a client sees, one for each partition."""

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from tidemill.shares.core.in_flight import InFlight
from tidemill.shares.core.share_position import SharePosition
from tidemill.sql.peer_access import PeerAccess
from tidemill.sql.state_tables import StateTables, best_known
from tidemill.sql.visible_rows import VisibleRows

STORED = SharePosition("g", "orders", 0, 4, 10, 6, None, counts_lag=True)
LED = STORED._replace(start_offset=5, lag=5, in_flight=InFlight(2, 1, 0, 1_500))


class NamedOnly(VisibleRows):
    """A client that may describe groups and topics with these names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def describes(self, topic: str) -> bool:
        return topic in self._names

    def describes_group(self, group: str) -> bool:
        return group in self._names


def tables(*positions: SharePosition) -> StateTables:
    broker = SimpleNamespace(share_positions=SimpleNamespace(now=lambda: list(positions)))
    return StateTables(cast("Any", broker), cast("Any", None), lambda: 0, cast("PeerAccess", None))


def test_a_client_sees_rows_whose_group_and_topic_it_may_describe() -> None:
    made = tables(STORED, STORED._replace(group_id="hidden"), STORED._replace(topic="secret"))
    found = made.here("share_groups", NamedOnly("g", "orders"))
    assert [tuple(row.values())[:3] for row in found.to_pylist()] == [("g", "orders", 0)]
    assert made.here("share_groups", NamedOnly("g")).num_rows == 0
    assert made.here("share_groups", NamedOnly("orders")).num_rows == 0


def test_the_row_of_the_leader_replaces_that_of_the_share_coordinator() -> None:
    seen = NamedOnly("g", "orders")
    rows = [tables(each).here("share_groups", seen) for each in (STORED, LED)]
    for parts in (rows, rows[::-1]):
        [row] = best_known(pa.concat_tables(parts)).to_pylist()
        assert tuple(row.values()) == ("g", "orders", 0, 5, 10, 5, 2, 1, 0, 1.5)
    [row] = best_known(rows[0]).to_pylist()
    assert tuple(row.values()) == ("g", "orders", 0, 4, 10, 6, None, None, None, None)
