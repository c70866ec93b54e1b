"""The status and the name of each error."""

from typing import Any

import grpc
import pytest

from tidemill.model import errors, timeline_errors
from tidemill.security.core.authorization_header import NoLogin
from tidemill.security.core.oauth import TokenRejected
from tidemill.security.core.peer_token import PeerTokenRejected
from tidemill.servers.grpc.error_status import answered, refuse, status_of


class Aborted(Exception):
    pass


class Context:
    """Records how a call ends."""

    def __init__(self) -> None:
        self.status: tuple[Any, ...] = ()

    async def abort(self, *status: Any) -> None:
        self.status = status
        raise Aborted


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (errors.SaslAuthenticationFailed("x"), grpc.StatusCode.UNAUTHENTICATED, "SaslAuthenticationFailed"),
        (NoLogin(), grpc.StatusCode.UNAUTHENTICATED, "SaslAuthenticationFailed"),
        (TokenRejected("x"), grpc.StatusCode.UNAUTHENTICATED, "SaslAuthenticationFailed"),
        (PeerTokenRejected("x"), grpc.StatusCode.UNAUTHENTICATED, "SaslAuthenticationFailed"),
        (errors.TopicAuthorizationFailed(), grpc.StatusCode.PERMISSION_DENIED, "TopicAuthorizationFailed"),
        (errors.GroupAuthorizationFailed(), grpc.StatusCode.PERMISSION_DENIED, "GroupAuthorizationFailed"),
        (errors.ClusterAuthorizationFailed(), grpc.StatusCode.PERMISSION_DENIED, "ClusterAuthorizationFailed"),
        (errors.RequestTimedOut(), grpc.StatusCode.UNAVAILABLE, "RequestTimedOut"),
        (errors.InvalidRequest(), grpc.StatusCode.INVALID_ARGUMENT, "InvalidRequest"),
        (timeline_errors.UnknownTimeline(), grpc.StatusCode.NOT_FOUND, "UnknownTimeline"),
    ],
)
async def test_an_error_has_a_status_and_a_name_that_clients_know(
    error: errors.TidemillError, status: grpc.StatusCode, name: str
) -> None:
    context = Context()
    assert status_of(error) is status
    with pytest.raises(Aborted):
        await refuse(context, error)
    assert context.status == (status, str(error), (("tidemill-error", name),))


async def test_an_unexpected_error_reveals_nothing() -> None:
    context = Context()

    async def fails() -> None:
        raise RuntimeError("/secret/path")

    with pytest.raises(Aborted):
        await answered(context, fails)
    assert context.status[0] is grpc.StatusCode.INTERNAL
    assert "secret" not in str(context.status)
