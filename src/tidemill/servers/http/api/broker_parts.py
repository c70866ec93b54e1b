"""Views of the whole cluster: each broker makes the part that only it knows, and the others ask it for that part.

A part is a function from a question to a document. This broker calls its own function, and asks the others over HTTP
with a signed call that names the client, so that each leaves out what the client may not see. A broker that does not
answer in time is named in the result, and its part is missing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.error import HTTPError

import msgspec
import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.shared_answers import SharedAnswers
from tidemill.sql.peer_access import PeerAccess
from tidemill.wire.http.document import Problem

PART_S = 4.0
"""How long another broker may take."""
PATH = "/api/v1/parts/"
EVERY_BROKER = -1
REUSED_S = 0.5
"""For parts that many pages need."""

log = structlog.get_logger("tidemill.console")

Q = TypeVar("Q", bound=msgspec.Struct)
P = TypeVar("P", bound=msgspec.Struct)


class PartKind(NamedTuple, Generic[Q, P]):
    """One kind of part: its name, the classes of question and answer, and the function that makes it here."""

    name: str
    question: type[Q]
    answer: type[P]
    make: Callable[[BrokerNode, ClientRights, Q], Awaitable[P]]
    fresh_s: float = 0.0
    """How long the answers may be used again for the same client; 0 for parts that change something."""


class Gathered(NamedTuple, Generic[P]):
    """The parts of the brokers that answered, by node id, and the others."""

    parts: dict[int, P]
    unreachable: list[int]


class BrokerParts:
    """Gathers parts. `kinds` are all parts that the brokers of this version make."""

    def __init__(self, broker: BrokerNode, access: PeerAccess, kinds: Sequence[PartKind[Any, Any]]) -> None:
        self._broker = broker
        self._access = access
        self._kinds = {each.name: each for each in kinds}
        self._shared = SharedAnswers()

    def forget(self) -> None:
        """A client has changed something through this broker: ask again."""
        self._shared.forget()

    async def gather(self, kind: PartKind[Q, P], rights: ClientRights, question: Q) -> Gathered[P]:
        """The part of every live broker."""
        if not kind.fresh_s:
            return await self._gather(kind, rights, question)
        key = EVERY_BROKER, kind.name, rights.principal, rights.host, msgspec.json.encode(question)
        return await self._shared.get(key, kind.fresh_s, lambda: self._gather(kind, rights, question))

    async def _gather(self, kind: PartKind[Q, P], rights: ClientRights, question: Q) -> Gathered[P]:
        own_id = self._broker.node_id
        others = [node_id for node_id in self._broker.view.image.brokers if node_id != own_id]
        asking = asyncio.gather(*(self._ask(each, kind, rights, question) for each in others))
        try:
            parts: dict[int, P] = {own_id: await kind.make(self._broker, rights, question)}
            answers = dict(zip(others, await asking, strict=True))
        finally:
            asking.cancel()
        parts |= {node_id: part for node_id, part in answers.items() if part is not None}
        unreachable = [node_id for node_id, part in answers.items() if part is None]
        return Gathered(parts, sorted([*unreachable, *(each.node_id for each in self._broker.view.missing_brokers())]))

    async def at(self, node_id: int, kind: PartKind[Q, P], rights: ClientRights, question: Q) -> P:
        """The part of one broker; ApiProblem when it does not answer."""
        if not kind.fresh_s:
            return await self._at(node_id, kind, rights, question)
        key = node_id, kind.name, rights.principal, rights.host, msgspec.json.encode(question)
        return await self._shared.get(key, kind.fresh_s, lambda: self._at(node_id, kind, rights, question))

    async def _at(self, node_id: int, kind: PartKind[Q, P], rights: ClientRights, question: Q) -> P:
        if node_id == self._broker.node_id:
            return await kind.make(self._broker, rights, question)
        body = msgspec.json.encode(question)
        try:
            return msgspec.json.decode(await self._call(node_id, kind.name, body, rights), type=kind.answer)
        except HTTPError as error:
            raise ApiProblem(error.code, _reason(error)) from None
        except (OSError, msgspec.DecodeError) as error:
            raise ApiProblem(503, f"broker {node_id} does not answer: {error}; try again") from None

    async def make(self, name: str, rights: ClientRights, question: bytes) -> bytes:
        """This broker's part, for another broker."""
        kind = self._kinds.get(name)
        if kind is None:
            raise ApiProblem(404, f"this broker has no part {name[:60]!r}; run the same version on all brokers")
        try:
            asked = msgspec.json.decode(question, type=kind.question)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise ApiProblem(400, f"the question is not valid: {error}") from None
        return msgspec.json.encode(await kind.make(self._broker, rights, asked))

    async def _ask(self, node_id: int, kind: PartKind[Q, P], rights: ClientRights, question: Q) -> P | None:
        try:
            return await self._at(node_id, kind, rights, question)
        except ApiProblem as error:
            log.warning("broker_part_missing", broker=node_id, part=kind.name, reason=str(error))
            return None

    async def _call(self, node_id: int, name: str, body: bytes, rights: ClientRights) -> bytes:
        registration = self._broker.view.image.brokers.get(node_id)
        if registration is None or registration.http is None:
            raise ApiProblem(503, f"broker {node_id} has no HTTP server; start it with --http")
        address = registration.http
        return await asyncio.to_thread(
            self._access.post, node_id, (address.host, address.port), PATH + name, body, rights, PART_S
        )


def _reason(error: HTTPError) -> str:
    try:
        return msgspec.json.decode(error.read(64 * 1024), type=Problem).error
    except (msgspec.DecodeError, OSError):
        return f"the other broker answers with status {error.code}"
