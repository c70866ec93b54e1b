"""Failed logins of one address become slow, and the addresses that are remembered are bounded."""

import pytest

from tidemill.security.core.failed_logins import (
    ADDRESSES_MAX,
    FAILURES_AT_ONCE,
    FAILURES_PER_S,
    FailedLogins,
    network_of,
)


def test_the_first_failures_do_not_wait_and_later_ones_wait_for_their_rate() -> None:
    failed = FailedLogins()
    waits = [failed.wait_s("a", 100.0) for _ in range(FAILURES_AT_ONCE + 3)]
    assert waits[:FAILURES_AT_ONCE] == pytest.approx([0.0] * FAILURES_AT_ONCE)
    assert waits[FAILURES_AT_ONCE:] == pytest.approx([each / FAILURES_PER_S for each in (1, 2, 3)])
    assert failed.wait_s("b", 100.0) == 0.0


def test_permits_come_back() -> None:
    failed = FailedLogins()
    for _ in range(FAILURES_AT_ONCE):
        failed.wait_s("a", 100.0)
    assert failed.wait_s("a", 100.0 + 1 / FAILURES_PER_S) == pytest.approx(0.0)
    assert failed.wait_s("a", 1000.0) == 0.0


def test_addresses_are_bounded() -> None:
    failed = FailedLogins()
    for number in range(ADDRESSES_MAX + 5):
        failed.wait_s(str(number), 100.0)
    assert len(failed) == ADDRESSES_MAX
    failed.wait_s("new", 200.0)
    assert len(failed) == 1


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host: str, network: str) -> None:
    assert network_of(host) == network


def test_an_address_that_owes_nothing_is_forgotten_before_one_that_does() -> None:
    logins = FailedLogins()
    for _ in range(4 * FAILURES_AT_ONCE):
        logins.wait_s("guesses", 1.0)
    logins.wait_s("failed once", 1.25)
    for number in range(ADDRESSES_MAX - 2):
        logins.wait_s(f"other {number}", 1.3)
    now_s = 1.25 + 1 / FAILURES_PER_S
    logins.wait_s("new", now_s)
    assert len(logins) == ADDRESSES_MAX
    assert logins.wait_s("guesses", now_s) > 1
