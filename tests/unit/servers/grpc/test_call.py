"""A gRPC call: the address of its client, and a login that ends while the call runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.model.errors import RequestTimedOut, SaslAuthenticationFailed
from tidemill.security.core.principal import user
from tidemill.servers.grpc.call import Caller, GrpcCall, host_of
from tidemill.servers.grpc.call_counts import CallOutcome


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:52440", "10.0.0.7"),
        ("ipv6:%5B::1%5D:52440", "::1"),
        ("ipv6:[2001:db8::7]:52440", "2001:db8::7"),
        ("ipv6:%5Bfe80::1%25eth0%5D:52440", "fe80::1%eth0"),
        ("unix:/run/tidemill.sock", "unix"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_the_address_of_a_client(peer: str, host: str) -> None:
    assert host_of(peer) == host


class Logins:
    """The request login of a broker, with one answer."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0

    async def user(self, *_: Any) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


def call_of(logins: Logins, caller: Caller) -> tuple[GrpcCall, Any]:
    security: Any = SimpleNamespace(users=SimpleNamespace(version=1), request_login=logins)
    return GrpcCall(None, security, caller, CallOutcome()), security.users


async def test_a_login_with_an_end() -> None:
    call, _ = call_of(Logins(), Caller(user("ada"), "h", expires_ms=1_000))
    await call.check_login(999)
    with pytest.raises(SaslAuthenticationFailed, match="expired"):
        await call.check_login(1_000)


async def test_a_login_is_checked_again_after_a_change_of_the_users() -> None:
    logins = Logins()
    call, users = call_of(logins, Caller(user("ada"), "h", authorization="Basic x"))
    await call.check_login(0)
    assert logins.asked == 0
    users.version = 2
    await call.check_login(0)
    await call.check_login(0)
    assert logins.asked == 1
    users.version = 3
    logins.error = SaslAuthenticationFailed("wrong")
    for _ in range(2):
        with pytest.raises(SaslAuthenticationFailed):
            await call.check_login(0)


async def test_a_login_that_cannot_be_checked_now_is_checked_the_next_time() -> None:
    logins = Logins()
    call, users = call_of(logins, Caller(user("ada"), "h", authorization="Basic x"))
    users.version, logins.error = 2, RequestTimedOut()
    await call.check_login(0)
    logins.error = SaslAuthenticationFailed("wrong")
    with pytest.raises(SaslAuthenticationFailed):
        await call.check_login(0)


def test_a_caller_does_not_show_its_login() -> None:
    assert "secret" not in repr(Caller(user("ada"), "h", authorization="Bearer secret"))
