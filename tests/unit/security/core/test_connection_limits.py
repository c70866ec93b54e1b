"""Which connections are accepted: open ones of an address, and new ones in a second."""

import pytest

from tidemill.model.errors import InvalidConfig
from tidemill.security.core import connection_limits as module
from tidemill.security.core.connection_limits import (
    ADDRESS_EXPIRY_S,
    ADMITTED,
    REFUSED,
    AddressLimits,
    ConnectionLimits,
    ConnectionRate,
    parse_overrides,
)

BURST_S, WINDOW_S = 10.0, 1.0
HOME, AWAY = "127.0.0.1", "10.0.0.7"


def limits(most: int = 1000, **overrides: int) -> ConnectionLimits:
    return ConnectionLimits(AddressLimits(most, overrides), BURST_S, WINDOW_S)


def test_an_address_has_a_number_of_open_connections() -> None:
    made = ConnectionLimits(AddressLimits(2, {AWAY: 0}), BURST_S, WINDOW_S)
    assert [made.admit(HOME, None, 0.0) for _ in range(3)] == [ADMITTED, ADMITTED, REFUSED]
    assert made.open_from(HOME) == 2
    assert made.admit(AWAY, None, 0.0) == REFUSED
    made.release(HOME)
    assert made.admit(HOME, None, 0.0) == ADMITTED
    made.release(HOME)
    assert made.open_from(HOME) == 1
    assert [made.admit(HOME, None, 0.0) for _ in range(2)] == [ADMITTED, REFUSED]
    made.release(HOME)
    made.release(HOME)
    assert made.open_from(HOME) == 0
    assert not made._open


def test_an_address_above_its_quota_waits_for_its_end() -> None:
    made = limits()
    reported = [made.admit(HOME, 2.0, 0.0).is_admitted for _ in range(25)]
    assert reported == [True] * 20 + [False] * 5
    assert made.admit(HOME, 2.0, 0.0).wait_s == pytest.approx(0.5)
    assert made.admit(HOME, 0.1, 0.0).wait_s == WINDOW_S
    assert made.admit(AWAY, 2.0, 0.0) == ADMITTED
    assert made.admit(HOME, 2.0, 0.5) == ADMITTED
    assert made.open_from(HOME) == 21  # refused ones do not count


def test_a_listener_above_a_rate_accepts_later() -> None:
    made = limits()
    shared = ConnectionRate(2.0, BURST_S, 0.0)
    made.limit("OUT", (shared, ConnectionRate(1000.0, BURST_S, 0.0)))
    made.limit("BROKERS", ())
    for _ in range(20):
        assert made.accept_wait_s("OUT", 0.0) == 0
        made.accepted("OUT", 0.0)
    assert made.accept_wait_s("OUT", 0.0) == pytest.approx(0.5)
    assert made.accept_wait_s("BROKERS", 0.0) == 0
    assert made.accept_wait_s("OUT", 0.5) == 0
    slow = limits()
    slow.limit("OUT", (ConnectionRate(0.01, 1.0, 0.0),))
    assert slow.accept_wait_s("OUT", 0.0) == WINDOW_S


def test_measured_addresses_are_bounded_and_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEASURED_ADDRESSES_MAX", 10)
    made = limits()
    for number in range(50):
        made.admit(f"10.0.0.{number}", 5.0, 0.0)
    assert made.measured() == 10
    made.admit(HOME, 5.0, ADDRESS_EXPIRY_S)
    made.expire(ADDRESS_EXPIRY_S + 1)
    assert made.measured() == 1


def test_overrides_are_read() -> None:
    assert parse_overrides(["10.0.0.7:20", "[::1]:5", "::ffff:10.0.0.8: 7", "localhost:3"]) == {
        "10.0.0.7": 20,
        "::1": 5,
        "10.0.0.8": 7,
        "localhost": 3,
    }


@pytest.mark.parametrize("text", ["10.0.0.7", ":5", "10.0.0.7:", "10.0.0.7:many", "10.0.0.7:-1", "10.0.0.7:٣"])
def test_overrides_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        parse_overrides([text])
