"""What a handler module gives to the router, and what a handler gets.

A handler module lists its APIs in `APIS`. A handler is `async def handle(call, request)`: it returns the answer, made
with `call.response(...)`, or the answer's encoded buffers, or None for "no answer". It may raise: an error of
`tidemill.model.errors` becomes the answer's top-level `error_code` (and `error_message`, where the version has one);
an answer without such a field cannot carry it, so such handlers put `error_code(error)` where it belongs themselves.

A handler goes through a list of the client with `async for each in call.in_slices(items)`, so that a long one does not
hold the event loop. State may change between two items.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import TidemillError, UnknownServerError
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX, InSlices, LoopGuard, LoopSlice
from tidemill.wire.kafka.schema import api_name, build, field_names, response_class, response_module
from tidemill.wire.kafka.writer import message_writer

Buffers: TypeAlias = list[bytes | bytearray | memoryview]
Handler: TypeAlias = "Callable[[Call, Any], Awaitable[Any]]"

_T = TypeVar("_T")


class Read(Protocol):
    """Reads a request: the frame, the position of its body, the version, and how many array items are accepted."""

    def __call__(self, frame: bytearray, position: int, version: int, items_max: int = ..., /) -> Any:
        """The request, in the form that its handler takes."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API key: the versions that clients are told, and the function that serves it.

    `served_from` is above `versions[0]` where old versions are listed but refused: old librdkafka
    stops compressing when Produce 0 is not listed.
    `pipelined`: the next request of the connection may start before this one is answered.
    `abandoned`: the handler is cancelled when its client goes (long polls); all others run to their end.
    `parked`: the handler may wait for other clients (JoinGroup); a closing door does not wait for it.
    `read` takes the place of the general reader for requests that carry data.
    """

    key: int
    versions: tuple[int, int]
    handle: Handler
    served_from: int = 0
    pipelined: bool = False
    abandoned: bool = False
    parked: bool = False
    read: Read | None = None

    @property
    def name(self) -> str:
        """The API's name as Kafka writes it."""
        return api_name(self.key)

    def serves(self, version: int) -> bool:
        """Whether a request of this version has an answer."""
        return max(self.versions[0], self.served_from) <= version <= self.versions[1]


class Feature(NamedTuple):
    """A feature that ApiVersions names (`transaction.version`): the levels supported and the one in force."""

    name: str
    low: int
    high: int
    in_force: int


class ApiListing(Protocol):
    """What ApiVersions is made from."""

    features: tuple[Feature, ...]

    def listed(self) -> list[Api]:
        """The APIs by key."""


class ConnectionIdentity:
    """Who is at the other end of a connection: a client, or a broker of this cluster that has proved it.

    `offered` is the handshake that is under way, if one is.
    """

    __slots__ = ("node_id", "offered")

    def __init__(self) -> None:
        self.node_id: int | None = None
        self.offered: bytes | None = None


class Call:
    """One request on its way: who asks, in which version, and the broker that is asked.

    `memory_short`: clients that do not read their answers hold much memory, so this answer should be small.
    """

    __slots__ = (
        "_guard",
        "_parts",
        "_slice",
        "api_key",
        "broker",
        "client_host",
        "client_id",
        "identity",
        "memory_short",
        "router",
        "version",
    )

    def __init__(
        self,
        broker: BrokerNode,
        api_key: int,
        version: int,
        client_id: str,
        client_host: str,
        router: ApiListing,
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
        self.router = router
        self.identity = identity
        self.memory_short = memory_short

    @property
    def peer(self) -> int | None:
        """The number of the broker that asks, once it has proved that it knows the cluster's secret."""
        return self.identity.node_id

    def response(self, **fields: Any) -> Any:
        """The answer of this call's version; fields that the version does not have are left out."""
        return build(response_class(self.api_key, self.version), fields)

    @property
    def is_answer_large(self) -> bool:
        """Whether the answer has so many parts that the worker encodes it."""
        return self._parts > LOOP_ITEMS_MAX

    def in_slices(self, items: Iterable[_T]) -> InSlices[_T]:
        """The items, with a pause for other requests whenever this one has used up its time on the event loop."""
        return InSlices(items, self._slice)

    async def pause(self) -> None:
        """Let others go first when this request has used up its time, or has waited for something else."""
        if self._slice.is_over:
            await self._slice.next()

    async def in_worker(self, function: Callable[..., _T], *args: Any) -> _T:
        """The result of a function that only computes, called in the worker thread."""
        return await self._guard.in_worker(function, *args)

    async def encoded(self, answer: Any) -> bytearray:
        """The answer as bytes."""
        kind = response_class(self.api_key, self.version)
        return await self.in_worker(encode, kind, answer) if self.is_answer_large else encode(kind, answer)

    def part(self, name: str, /, **fields: Any) -> Any:
        """A structure inside the answer, by kio's name for it (`MetadataResponseTopic`)."""
        self._parts += 1
        return build(getattr(response_module(self.api_key, self.version), name), fields)

    def refusal(self, error: BaseException) -> Any | None:
        """The answer that carries `error` at its top, or None where this version has no place for it."""
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
    """The sentence that a client may show; errors that nobody foresaw say nothing about the inside."""
    if error is None:
        return None
    return str(error) if isinstance(error, TidemillError) else str(UnknownServerError())
