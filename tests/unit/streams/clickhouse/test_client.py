"""Options of the ClickHouse client."""

from pathlib import Path

import pytest

from tidemill.streams.clickhouse.client import connect
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
