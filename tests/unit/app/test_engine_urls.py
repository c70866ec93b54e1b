"""Engines on other machines are reached by TLS that checks the server, or named."""

import pytest

from tidemill.app.engine_urls import unverified_engines
from tidemill.settings import load


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ("coordination", "etcd://db1:2379,127.0.0.1:2379/shop"),
        ("coordination", "etcd://me:p@ss@10.0.0.1"),
        ("coordination", "etcd://[2001:db8::1]:2379"),
        ("timelines", "postgresql://me:secret@db/app"),
        ("timelines", "postgresql://me@db/app?sslmode=require"),
        ("timelines", "postgres:///app?host=db"),
        ("streams", "clickhouse://me:secret@one,two/shop"),
        ("streams", "clickhouse://one?secure=false"),
        ("streams", "clickhouse://localhost|two/shop?cluster=c"),
    ],
)
def test_an_engine_on_another_machine_is_named(setting: str, url: str) -> None:
    assert unverified_engines(load({setting: url})) == [setting]


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ("coordination", "local:"),
        ("coordination", "etcd://127.0.0.1:2379,localhost:2380"),
        ("coordination", "etcd://[::1]:2379"),
        ("coordination", "etcds://db1:2379"),
        ("coordination", "etcd://db1:2379?ca=ca.pem"),
        ("timelines", "sqlite:/var/lib/timelines.db"),
        ("timelines", "postgresql://me@127.0.0.1/app"),
        ("timelines", "postgresql:///app?host=/run/postgresql"),
        ("timelines", "postgresql://me@db/app?sslmode=verify-full"),
        ("streams", "segments:"),
        ("streams", "clickhouse://one?secure=true"),
        ("streams", "clickhouse://one?ca=ca.pem"),
        ("streams", "clickhouse://localhost:8123"),
    ],
)
def test_an_engine_here_or_with_a_certificate_is_not(setting: str, url: str) -> None:
    assert unverified_engines(load({setting: url})) == []
