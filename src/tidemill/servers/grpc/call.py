"""One gRPC call: the client that has sent it, what it may do, and how to end the call."""

from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

from tidemill.model.errors import SaslAuthenticationFailed, TidemillError
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.peer_token import OpenedToken
from tidemill.security.core.principal import ANONYMOUS, Principal
from tidemill.security.security import Security
from tidemill.servers.grpc.call_counts import CallOutcome, known_error
from tidemill.tracing.core.trace_context import TRACEPARENT, TraceContext, parse_traceparent

SERVER_NAME = "grpc"
ERROR_KEY = "tidemill-error"
"""The trailing metadata with the class of the error."""
RETRY_AFTER_KEY = "tidemill-retry-after-ms"


class Caller(NamedTuple):
    """Who has sent a call.

    `authorization` is the login of the call, to check it again in a long call. `forwarded` is set if a broker has
    forwarded the call: its token names the client.
    """

    principal: Principal = ANONYMOUS
    host: str = ""
    expires_ms: int | None = None
    authorization: str | None = None
    forwarded: OpenedToken | None = None

    def __repr__(self) -> str:
        return f"Caller({self.principal}, {self.host})"  # a traceback or a log line must not have the login


class GrpcCall:
    """A call whose client has authenticated, if it had to."""

    __slots__ = ("_context", "_outcome", "_security", "_users_version", "caller", "rights")

    def __init__(self, context: Any, security: Security, caller: Caller, outcome: CallOutcome) -> None:
        self._context = context
        self._outcome = outcome
        self._security = security
        self._users_version = security.users.version
        self.caller = caller
        self.rights = ClientRights(security, caller.principal, caller.host)

    @property
    def is_forwarded(self) -> bool:
        """Whether a broker of this cluster has forwarded the call."""
        return self.caller.forwarded is not None

    @property
    def peer(self) -> str:
        """The address of the connection, as gRPC writes it."""
        return str(self._context.peer())

    def trace_context(self) -> TraceContext | None:
        """The trace that the client names in the metadata; as the standard demands, of several values none counts."""
        values = [value for name, value in self._context.invocation_metadata() or () if name == TRACEPARENT]
        return parse_traceparent(values[0]) if len(values) == 1 else None

    def time_remaining(self) -> float | None:
        """The seconds until the call's deadline."""
        left: float | None = self._context.time_remaining()
        return left

    async def abort(self, code: Any, details: str, trailing_metadata: tuple[Any, ...] = ()) -> NoReturn:
        """End the call with a status."""
        self._outcome.error = known_error(dict(trailing_metadata).get(ERROR_KEY))
        await self._context.abort(code, details, trailing_metadata)
        raise RuntimeError("gRPC has not ended the call")

    async def check_login(self, now_ms: int) -> None:
        """Raise SaslAuthenticationFailed when the login has ended since the call began: for calls that take long."""
        if self.caller.expires_ms is not None and now_ms >= self.caller.expires_ms:
            raise SaslAuthenticationFailed("the login has expired; log in again")
        version = self._security.users.version
        if self.caller.authorization is None or version == self._users_version:
            return
        login = self._security.request_login
        try:
            await login.user(self.caller.authorization, self.caller.host, SERVER_NAME)
        except SaslAuthenticationFailed:
            raise
        except TidemillError:  # it could not be checked now
            return
        self._users_version = version


def host_of(peer: str) -> str:
    """The address of a client without its port: gRPC writes `ipv4:10.0.0.7:1234`, `ipv6:%5B::1%5D:1234`, `unix:`."""
    kind, _, address = peer.partition(":")
    if kind == "ipv4":
        return address.rpartition(":")[0]
    if kind == "ipv6":
        return unquote(address).rpartition(":")[0].strip("[]")
    return kind
