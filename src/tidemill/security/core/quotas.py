"""Client quotas: whom one is for, which of them applies to a client, and the filters of DescribeClientQuotas.

A quota is for a user, a client id, both, or an address (`ip`); the name None is the default of its type. A client has
one quota of each kind: the first that exists of the eight levels in `applied_levels`, which are those of Apache Kafka.
"""

import ipaddress
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tidemill.model.errors import InvalidRequest, KafkaStorageError, UnsupportedVersion

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
ENTITY_NAME_CHARS_MAX = 256
_SHOWN_CHARS = 60
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1


class QuotaKind(Enum):
    """What a quota limits. The value is Kafka's name for it."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


KINDS = {kind.value: kind for kind in QuotaKind}
CLIENT_KINDS = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.MUTATION)
_WHOLE_MAX = {QuotaKind.PRODUCE: _INT64_MAX, QuotaKind.FETCH: _INT64_MAX, QuotaKind.CONNECTION: _INT32_MAX}
"""Kinds whose values are whole numbers, with their largest value."""

QuotaValues = Mapping[QuotaKind, float]


class QuotaEntity(NamedTuple):
    """Whom quotas are for: each type that is named, in the order of ENTITY_TYPES."""

    entries: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in self.entries)


class _Absent(Enum):
    """The type is not part of the entity."""

    ABSENT = 0


ABSENT = _Absent.ABSENT
Name = str | None | _Absent
Level = tuple[Name, Name]
"""The user and the client id of an entity."""


class AppliedQuota(NamedTuple):
    """The quota of a client, and the clients that share it: one user, one client id, or one of both."""

    value: float
    shared_by: Level


def parse_entity(entries: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of a request; InvalidRequest says what is wrong."""
    found: dict[str, str | None] = {}
    for kind, name in entries:
        if kind in found:
            raise InvalidRequest(f"the quota entity names {kind[:_SHOWN_CHARS]} twice; name each type once")
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(
                f"unknown quota entity type {kind[:_SHOWN_CHARS]!r}; the types are {', '.join(ENTITY_TYPES)}"
            )
        if name == "":
            raise InvalidRequest(f"the quota entity has an empty {kind}; leave the name out for the default")
        if name is not None and len(name) > ENTITY_NAME_CHARS_MAX:
            raise InvalidRequest(f"the {kind} has {len(name)} characters; at most {ENTITY_NAME_CHARS_MAX} are possible")
        found[kind] = name
    if not found:
        raise InvalidRequest("the quota entity is empty; name a user, a client id or an address")
    if IP in found:
        if len(found) > 1:
            raise InvalidRequest("a quota of an ip cannot name a user or a client id as well; make two quotas")
        found[IP] = _address(found[IP])
    return QuotaEntity(tuple((kind, found[kind]) for kind in ENTITY_TYPES if kind in found))


def _address(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return plain_address(text)
    except ValueError:
        raise InvalidRequest(f"{text[:_SHOWN_CHARS]!r} is not an IP address") from None


def plain_address(text: str) -> str:
    """An address in its shortest form, and IPv4 inside IPv6 as IPv4; ValueError for another text."""
    found = ipaddress.ip_address(text)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def parse_value(entity: QuotaEntity, key: str, value: float) -> tuple[QuotaKind, float]:
    """The kind and the value of a quota; InvalidRequest says what is wrong."""
    kind = parse_kind(entity, key)
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequest(f"{key}={value:g} is not possible; a quota is greater than 0")
    largest = _WHOLE_MAX.get(kind)
    if largest is not None and value > largest:
        raise InvalidRequest(f"{key}={value:g} is too large; {largest} is the limit")
    if largest is not None and value != int(value):
        raise InvalidRequest(f"{key}={value:g} is not a whole number")
    return kind, value


def parse_kind(entity: QuotaEntity, key: str) -> QuotaKind:
    """The kind of a quota that the entity can have."""
    kind = KINDS.get(key)
    of_address = entity.entries[0][0] == IP
    if kind is None or (kind is QuotaKind.CONNECTION) != of_address:
        names = [QuotaKind.CONNECTION.value] if of_address else [each.value for each in CLIENT_KINDS]
        raise InvalidRequest(
            f"there is no quota {key[:_SHOWN_CHARS]!r} for {entity.entries[0][0]}; use {', '.join(names)}"
        )
    return kind


def entity_id(entity: QuotaEntity) -> str:
    """The name of an entity in coordination: the same for equal entities."""
    return json.dumps(entity.entries, separators=(",", ":"), ensure_ascii=False)


def decode_entity(text: str) -> QuotaEntity:
    """Decode the output of `entity_id`."""
    try:
        return parse_entity([(kind, name) for kind, name in json.loads(text)])
    except (ValueError, TypeError, InvalidRequest) as error:
        raise KafkaStorageError(f"the entity of a quota in coordination cannot be read: {error}") from None


def decode_values(document: bytes) -> dict[QuotaKind, float]:
    """Decode the stored quotas of an entity; kinds of newer brokers are left out."""
    try:
        read = json.loads(document)
        return {KINDS[key]: float(value) for key, value in read.items() if key in KINDS}
    except (ValueError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a quota in coordination cannot be read: {error}") from None


def edited_values(old: bytes | None, changes: Mapping[QuotaKind, float | None]) -> bytes | None:
    """The stored quotas after a change; None when none is left. Kinds of newer brokers stay."""
    try:
        read = {} if old is None else dict(json.loads(old))
    except (ValueError, TypeError):
        read = {}  # unreadable: it is replaced
    merged = {**read, **{kind.value: value for kind, value in changes.items()}}
    left = {key: value for key, value in merged.items() if value is not None}
    return json.dumps(left, separators=(",", ":")).encode() if left else None


def applied_levels(user: str, client_id: str) -> tuple[tuple[Level, Level], ...]:
    """The levels at which a client's quota is looked up, the first one wins; and by whom it is shared."""
    both: Level = (user, client_id)
    of_user: Level = (user, ABSENT)
    of_client: Level = (ABSENT, client_id)
    return (
        (both, both),
        ((user, None), both),
        (of_user, of_user),
        ((None, client_id), both),
        ((None, None), both),
        ((None, ABSENT), of_user),
        (of_client, of_client),
        ((ABSENT, None), of_client),
    )


class QuotaTable:
    """All quotas of the cluster."""

    def __init__(self, quotas: Mapping[QuotaEntity, QuotaValues] | None = None) -> None:
        self.quotas = dict(quotas or {})
        self._of_clients: dict[QuotaKind, dict[Level, float]] = {}
        self._of_addresses: dict[str | None, float] = {}
        for entity, values in self.quotas.items():
            named: dict[str, str | None] = dict(entity.entries)
            for kind, value in values.items():
                if IP in named:
                    self._of_addresses[named[IP]] = value
                else:
                    self._of_clients.setdefault(kind, {})[named.get(USER, ABSENT), named.get(CLIENT_ID, ABSENT)] = value

    @property
    def limits_connections(self) -> bool:
        """Whether an address has a quota."""
        return bool(self._of_addresses)

    def limits(self, kind: QuotaKind) -> bool:
        """Whether a client has a quota of this kind."""
        return kind in self._of_clients

    def of_client(self, kind: QuotaKind, user: str, client_id: str) -> AppliedQuota | None:
        """The quota of a client."""
        values = self._of_clients.get(kind)
        if values is None:
            return None
        for level, shared_by in applied_levels(user, client_id):
            value = values.get(level)
            if value is not None:
                return AppliedQuota(value, shared_by)
        return None

    def of_address(self, address: str) -> float | None:
        """How many connections in a second an address may open."""
        value = self._of_addresses.get(address)
        return self._of_addresses.get(None) if value is None else value


def applying(
    quotas: Mapping[QuotaEntity, QuotaValues], user: str | None, client_id: str | None, address: str | None
) -> dict[QuotaKind, tuple[QuotaEntity, float]]:
    """The quotas of one client and the entity that each of them is from; a client without a name has an empty one."""
    looked_up: list[QuotaEntity] = []
    if address is not None:
        looked_up = [QuotaEntity(((IP, plain_address(address)),)), QuotaEntity(((IP, None),))]
    else:
        for level, _ in applied_levels(user or "", client_id or ""):
            named = zip((USER, CLIENT_ID), level, strict=True)
            looked_up.append(QuotaEntity(tuple((kind, name) for kind, name in named if name is not ABSENT)))
    found: dict[QuotaKind, tuple[QuotaEntity, float]] = {}
    for entity in looked_up:
        for kind, value in quotas.get(entity, {}).items():
            found.setdefault(kind, (entity, value))
    return found


class QuotaMatch(Enum):
    """How a part of a filter matches names, with Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(NamedTuple):
    """Selects entities that have every type of the filter; a strict one only those that have no other type."""

    exact: Mapping[str, str | None]
    any_name: frozenset[str]
    is_strict: bool

    def selects(self, entity: QuotaEntity) -> bool:
        """Whether the filter selects this entity."""
        named = dict(entity.entries)
        if any(kind not in named or named[kind] != name for kind, name in self.exact.items()):
            return False
        if not self.any_name.issubset(named):
            return False
        return not self.is_strict or len(named) == len(self.exact) + len(self.any_name)


def parse_filter(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> QuotaFilter:
    """The filter of a request: type, match and name of each part."""
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for kind, match, name in components:
        if not kind:
            raise InvalidRequest("a part of the filter has an empty entity type")
        if kind in exact or kind in any_name:
            raise InvalidRequest(f"the filter names {kind[:_SHOWN_CHARS]} twice; name each type once")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersion(
                f"unknown quota entity type {kind[:_SHOWN_CHARS]!r}; the types are {', '.join(ENTITY_TYPES)}"
            )
        if match not in {each.value for each in QuotaMatch}:
            raise InvalidRequest(f"{match} is not a match type; use 0 (exact), 1 (default) or 2 (any)")
        if (match == QuotaMatch.EXACT.value) != (name is not None):
            raise InvalidRequest("an exact match has a name, and the others have none")
        if match == QuotaMatch.ANY.value:
            any_name.add(kind)
        else:
            exact[kind] = _comparable(kind, name)
    if len(exact.keys() | any_name) > 1 and IP in exact.keys() | any_name:
        raise InvalidRequest("a filter for ip cannot name user or client-id as well")
    return QuotaFilter(exact, frozenset(any_name), is_strict)


def _comparable(kind: str, name: str | None) -> str | None:
    """Addresses are compared in the form that entities have; another text selects nothing."""
    if kind != IP or name is None:
        return name
    try:
        return plain_address(name)
    except ValueError:
        return name
