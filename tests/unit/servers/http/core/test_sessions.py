"""Sessions end in time, and their number is bounded."""

import pytest

from tidemill.servers.http.core.sessions import SessionTable

LIFETIME_S, IDLE_S = 1000.0, 100.0


@pytest.fixture
def table() -> SessionTable:
    return SessionTable(LIFETIME_S, idle_s=IDLE_S, sessions_max=4, per_user_max=2)


def test_a_session_belongs_to_its_id(table: SessionTable) -> None:
    table.open("id", "alice", "credentials", 0.0)
    found = table.use("id", 1.0)
    assert found is not None
    assert (found.name, found.credentials) == ("alice", "credentials")
    assert table.use("other", 1.0) is None
    assert "id" not in repr(table.__dict__["_sessions"])  # only its hash is kept


def test_an_idle_session_ends(table: SessionTable) -> None:
    table.open("id", "alice", None, 0.0)
    assert table.use("id", IDLE_S - 1) is not None
    assert table.use("id", 2 * IDLE_S - 2) is not None
    assert table.use("id", 3 * IDLE_S - 2) is None
    assert len(table) == 0


def test_a_session_in_use_ends_after_its_lifetime(table: SessionTable) -> None:
    table.open("id", "alice", None, 0.0)
    for now_s in range(0, int(LIFETIME_S), 50):
        assert table.use("id", now_s) is not None
    assert table.use("id", LIFETIME_S) is None


def test_an_ended_session_cannot_be_used(table: SessionTable) -> None:
    table.open("id", "alice", None, 0.0)
    table.end("id")
    table.end("id")
    assert table.use("id", 1.0) is None


def test_a_user_has_few_sessions_and_the_oldest_ends(table: SessionTable) -> None:
    for number in range(3):
        table.open(f"alice-{number}", "alice", None, number)
    table.open("bob", "bob", None, 3)
    assert [table.use(each, 4) is not None for each in ("alice-0", "alice-1", "alice-2", "bob")] == [
        False,
        True,
        True,
        True,
    ]


def test_the_session_that_was_used_longest_ago_ends_when_there_are_too_many(table: SessionTable) -> None:
    for number in range(4):
        table.open(f"id-{number}", f"user-{number}", None, 0)
    table.use("id-0", 1)
    table.open("id-4", "user-4", None, 2)
    assert len(table) == 4
    assert table.use("id-0", 3) is not None
    assert table.use("id-1", 3) is None


def test_ended_sessions_are_forgotten(table: SessionTable) -> None:
    table.open("a", "alice", None, 0)
    table.open("b", "bob", None, IDLE_S / 2)
    table.sweep(IDLE_S)
    assert len(table) == 1
