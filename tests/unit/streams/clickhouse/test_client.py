"""Options of the ClickHouse client."""

from pathlib import Path

import pytest

from tidemill.streams.clickhouse.client import connect, translate
from tidemill.streams.clickhouse.errors import EngineUncertain, EngineUnreachable
from tidemill.streams.clickhouse.url import parse

DATA = Path("/var/data")


def test_the_url_becomes_options_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def create(**options: object) -> None:
        given.update(options)

    monkeypatch.setattr("clickhouse_connect.driver.create_client", create)
    layout = parse("clickhouse://me:p%40s%3As@one/shop?secure=true", DATA)
    connect(layout, layout.servers[0], {"a": 1})
    assert {name: given[name] for name in ("host", "port", "username", "password", "secure")} == {
        "host": "one",
        "port": 8443,
        "username": "me",
        "password": "p@s:s",
        "secure": True,
    }
    assert "p@s" not in layout.place + layout.servers[0].name


class NewConnectionError(Exception):
    """As the library's cause: the connection was refused."""


@pytest.mark.parametrize(("attempt", "meaning"), [(1, EngineUnreachable), (2, EngineUncertain)])
def test_a_refused_connection_of_a_repeat_does_not_mean_that_nothing_was_sent(attempt: int, meaning: type) -> None:
    """The library repeats an insert when the connection closes, and the first attempt may be stored."""
    error = OSError(f"Error x executing HTTP request attempt {attempt} (http://one:8123)")
    error.__cause__ = NewConnectionError("refused")
    assert type(translate(error, parse("clickhouse://one", DATA).servers[0])) is meaning
