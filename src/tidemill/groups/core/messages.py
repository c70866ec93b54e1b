"""What members ask of a classic group, and what they are answered."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from tidemill.groups.core.entries import GroupEntry
from tidemill.model.errors import KafkaError

Ticket: TypeAlias = object
"""Whom an answer belongs to; the core only hands it back."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names of assignors in the member's order of preference, each with the member's subscription for it."""


class JoinRequest(NamedTuple):
    """JoinGroup. The two flags say what the request's version can do."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    takes_member_id_first: bool = True
    skips_assignment: bool = False


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    subscription: bytes


class JoinAnswer(NamedTuple):
    """The member's place in the new generation, or the id to join with (`error`)."""

    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False
    error: KafkaError | None = None


class SyncRequest(NamedTuple):
    """SyncGroup; None for what the version does not say."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = MappingProxyType({})


class SyncAnswer(NamedTuple):
    """The member's assignment."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


class Leaver(NamedTuple):
    """Who leaves: by id, by instance id (an operator removes a static member), or both."""

    member_id: str
    instance_id: str | None = None


class Left(NamedTuple):
    """How it went."""

    leaver: Leaver
    error: KafkaError | None = None


Answer: TypeAlias = JoinAnswer | SyncAnswer | KafkaError


class GroupStep(NamedTuple):
    """What a decision asks for: entries to be made durable and replayed, and what happens in memory after that."""

    entries: tuple[GroupEntry, ...] = ()
    then: Callable[[], None] | None = None
