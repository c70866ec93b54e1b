"""The types of the API table and of its handlers: `Api` is one row, `Call` is one request.

A handler is `async def handle(call, request)`. It returns the response, made with `call.response(...)`, or the encoded
buffers of the response, or None for "no response". It is typed with kio's classes of the newest version that is served;
older requests have fewer fields, or others (`cast` them). It may raise: an error of `tidemill.model.errors` becomes the
top-level `error_code` of the response (and `error_message`, where the version has one). Where a response has no such
field, the handler puts `error_code(error)` where it belongs.

A handler iterates over a client's list with `async for each in call.in_slices(items)`, so that a long list does not
block the event loop. State may change between two items.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TidemillError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
)
from tidemill.model.listeners import ListenerSpec
from tidemill.security.core.principal import ANONYMOUS, Principal
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.security.login import LoginExchange
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX, InSlices, LoopGuard, LoopSlice
from tidemill.wire.kafka.schema import build, field_names, response_class, response_module
from tidemill.wire.kafka.writer import message_writer

Buffers: TypeAlias = list[bytes | bytearray | memoryview]

Request = TypeVar("Request", default=Any)
Response = TypeVar("Response", default=Any)
_T = TypeVar("_T")

NAME_SHOWN_CHARS = 100
_DENIALS: dict[ResourceType, type[KafkaError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}


class Read(Protocol):
    """Reads a request: the frame, the position of its body, the version, and how many array items are accepted."""

    def __call__(self, frame: bytearray, position: int, version: int, items_max: int = ..., /) -> Any:
        """The request, in the form that its handler takes."""


@dataclass(frozen=True, slots=True)
class Api(Generic[Request, Response]):
    """One API: its key and name, the versions that ApiVersions lists, and the function that serves it.

    `served_from` is above `versions[0]` where old versions are listed but rejected: old librdkafka stops compressing
    when Produce 0 is not listed.
    `pipelined`: the next request of the connection may start before this one is answered.
    `abandoned`: the handler is cancelled when its client disconnects (long polls); all others run to their end.
    `parked`: the handler may wait for other clients (JoinGroup); a server that stops does not wait for it.
    `read` replaces the general reader for requests that carry data.
    """

    key: int
    name: str
    versions: tuple[int, int]
    handle: Callable[["Call[Response]", Request], Awaitable[Response | Buffers | bytes | None]]
    served_from: int = 0
    pipelined: bool = False
    abandoned: bool = False
    parked: bool = False
    read: Read | None = None

    def serves(self, version: int) -> bool:
        """Whether a request of this version is served."""
        return max(self.versions[0], self.served_from) <= version <= self.versions[1]


class Feature(NamedTuple):
    """A feature that ApiVersions names (`transaction.version`): the levels supported and the one in force."""

    name: str
    low: int
    high: int
    in_force: int


class ApiListing(Protocol):
    """The APIs and features that ApiVersions lists."""

    features: tuple[Feature, ...]

    def listed(self) -> list[Api]:
        """The APIs by key."""


class ConnectionIdentity:
    """The other end of a connection: a client, or a broker of this cluster that has proved it.

    `offered` is the handshake of a broker in progress, `exchange` the login of a client in progress.
    `principal` is ANONYMOUS until a client has authenticated, and `expires_ms` is when it must do so again.
    """

    __slots__ = (
        "exchange",
        "expires_ms",
        "has_failed",
        "host",
        "is_open",
        "listener",
        "mechanism",
        "node_id",
        "offered",
        "on_close",
        "principal",
    )

    def __init__(self, listener: ListenerSpec | None = None) -> None:
        self.listener = listener
        self.is_open = listener is None or not listener.requires_login
        """Whether requests are served without a login."""
        self.has_failed = False
        """Whether a login was refused; the connection closes after the answer."""
        self.principal = ANONYMOUS
        self.mechanism = ""
        self.host: str | None = None
        """The address of the client, when another broker has logged in for it."""
        self.exchange: LoginExchange | None = None
        self.expires_ms: int | None = None
        self.node_id: int | None = None
        self.offered: bytes | None = None
        self.on_close: dict[object, Callable[[], None]] = {}
        """Called when the connection is lost, by what they are about."""

    @property
    def is_authenticated(self) -> bool:
        """Whether requests may be served: the listener requires no login, or the other end has logged in."""
        return self.is_open or self.principal is not ANONYMOUS or self.node_id is not None


class Call(Generic[Response]):
    """One request: the client that sent it, its version, and the broker that serves it.

    `memory_short`: clients that do not read their responses hold much memory, so this response should be small.
    `own_errors` are the appends of a Produce request that failed by the client's fault. `wait_s` is how long the client
    must wait before its next request. `spent_s` is the time of the broker that the request took, if that is measured.
    """

    __slots__ = (
        "_guard",
        "_parts",
        "_slice",
        "api_key",
        "apis",
        "broker",
        "client_host",
        "client_id",
        "identity",
        "memory_short",
        "own_errors",
        "spent_s",
        "version",
        "wait_s",
    )

    def __init__(
        self,
        broker: BrokerNode,
        api_key: int,
        version: int,
        client_id: str,
        client_host: str,
        apis: ApiListing,
        *,
        identity: ConnectionIdentity,
        guard: LoopGuard,
        memory_short: bool = False,
    ) -> None:
        self._guard = guard
        self._slice = LoopSlice(guard)
        self._parts = 0
        self.broker = broker
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
        self.apis = apis
        self.identity = identity
        self.memory_short = memory_short
        self.own_errors = 0
        self.spent_s = 0.0
        self.wait_s = 0.0

    @property
    def listener(self) -> str:
        """The name of the listener that the client has connected to."""
        listener = self.identity.listener
        return "" if listener is None else listener.name

    @property
    def principal(self) -> Principal:
        """The user that sent the request."""
        return self.identity.principal

    def now_s(self) -> float:
        """The time that quotas are measured by: the event loop's."""
        return asyncio.get_running_loop().time()

    def throttle(self, wait_s: float) -> None:
        """Let the client wait for at least this time before its next request."""
        self.wait_s = max(self.wait_s, wait_s)

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this. A broker of the cluster may do everything."""
        authorizer = self.broker.security.authorizer
        if not authorizer.is_enabled or self.identity.node_id is not None:
            return True
        return authorizer.allows(self.identity.principal, self.client_host, operation, resource_type, name)

    @property
    def checks_rights(self) -> bool:
        """Whether the rights of the client are checked at all."""
        return self.broker.security.authorizer.is_enabled and self.identity.node_id is None

    def allows_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do this on at least one resource of the type."""
        authorizer = self.broker.security.authorizer
        if not authorizer.is_enabled or self.identity.node_id is not None:
            return True
        return authorizer.allows_anywhere(self.identity.principal, self.client_host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the client may do, as Kafka's bit field (`authorizedOperations`)."""
        return self.broker.security.authorizer.operations(self.principal, self.client_host, resource_type, name)

    def denial(self, operation: Operation, resource_type: ResourceType, name: str) -> KafkaError | None:
        """The error of the resource type if the client may not do this. A denial is written to the audit log."""
        if self.allows(operation, resource_type, name):
            return None
        principal = self.principal
        self.broker.security.audit.authorization_denied(principal, self.client_host, operation, resource_type, name)
        return _DENIALS.get(resource_type, ClusterAuthorizationFailed)(
            f"{principal} may not {operation.name} {resource_type.name} {name[:NAME_SHOWN_CHARS]}"
        )

    def check(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise the error of the resource type if the client may not do this."""
        if not self.allows(operation, resource_type, name):
            error = self.denial(operation, resource_type, name)
            if error is not None:
                raise error

    def check_cluster(self, operation: Operation) -> None:
        """Raise ClusterAuthorizationFailed if the client may not do this on the cluster."""
        self.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def changed(self, what: str, /, **fields: Any) -> None:
        """Write a change to the audit log, where clients have names; `what` is a fixed word like `topic_deleted`."""
        if self.checks_rights:
            self.broker.security.audit.changed(self.principal, self.client_host, what, **fields)

    @property
    def peer(self) -> int | None:
        """The id of the broker that sent the request, once it has proved that it knows the cluster's secret."""
        return self.identity.node_id

    def response(self, **fields: Any) -> Response:
        """The response in this call's version; fields that the version does not have are left out."""
        made: Response = build(response_class(self.api_key, self.version), fields)
        return made

    @property
    def is_answer_large(self) -> bool:
        """Whether the response has so many parts that the worker encodes it."""
        return self._parts > LOOP_ITEMS_MAX

    def in_slices(self, items: Iterable[_T]) -> InSlices[_T]:
        """The items, with a pause for other requests whenever this one has used up its time on the event loop."""
        return InSlices(items, self._slice)

    async def pause(self) -> None:
        """Yield to other requests when this one has used up its time, or has waited for something else."""
        if self._slice.is_over:
            await self._slice.next()

    async def in_worker(self, function: Callable[..., _T], *args: Any) -> _T:
        """The result of a function that only computes, called in the worker thread; its time counts as spent."""
        return await self._guard.in_worker(self._timed, function, *args)

    def _timed(self, function: Callable[..., _T], *args: Any) -> _T:
        began = perf_counter()
        try:
            return function(*args)
        finally:
            self.spent_s += perf_counter() - began

    async def encoded(self, answer: Any) -> bytearray:
        """The response as bytes."""
        kind = response_class(self.api_key, self.version)
        return await self.in_worker(encode, kind, answer) if self.is_answer_large else encode(kind, answer)

    def part(self, name: str, /, **fields: Any) -> Any:
        """A structure inside the response, by kio's name for it (`MetadataResponseTopic`)."""
        self._parts += 1
        return build(getattr(response_module(self.api_key, self.version), name), fields)

    def refusal(self, error: BaseException) -> Response | None:
        """The response that carries `error` at its top, or None where this version has no field for it."""
        names = field_names(response_class(self.api_key, self.version))
        if "error_code" not in names:
            return None
        return self.response(error_code=error_code(error), error_message=error_message(error))


def encode(kind: Any, answer: Any) -> bytearray:
    """A message of kio's class `kind` as bytes."""
    out = bytearray()
    message_writer(kind)(out, answer)
    return out


def error_code(error: BaseException | None) -> int:
    """Kafka's number for an error; 0 for none."""
    if error is None:
        return 0
    return error.code if isinstance(error, TidemillError) else UnknownServerError.code


def error_message(error: BaseException | None) -> str | None:
    """The message for the client; the message of an unexpected error reveals nothing about the broker."""
    if error is None:
        return None
    return str(error) if isinstance(error, TidemillError) else str(UnknownServerError())
