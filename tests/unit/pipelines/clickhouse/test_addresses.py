"""Addresses of tables."""

import pytest

from tidemill.pipelines.clickhouse.core.addresses import TableAddress, parse_address
from tidemill.pipelines.errors import WrongOption


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("chdb:lake/shop", TableAddress(path="lake/shop")),
        ("chdb:///var/shop", TableAddress(path="/var/shop")),
        ("http://db", TableAddress("db")),
        ("clickhouse://me:p%40ss@db:9/shop", TableAddress("db", 9, "shop", "me", "p@ss")),
        ("https://db/shop", TableAddress("db", 8443, "shop", secure=True)),
    ],
)
def test_addresses(url: str, address: TableAddress) -> None:
    assert parse_address(url) == address
    assert "p@ss" not in str(address)


@pytest.mark.parametrize("url", ["chdb:", "db:9000", "postgres://db/shop", "http://", "http://db:port"])
def test_an_invalid_address_is_rejected(url: str) -> None:
    with pytest.raises(WrongOption) as caught:
        parse_address(url)
    assert "\n" not in str(caught.value)
