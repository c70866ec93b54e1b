"""All ACLs of the cluster in the form that a check needs.

A table is immutable: a change makes a new one that shares the unchanged parts, so a thread may search an old one.
The bindings of one resource pattern are bit sets of operations by (principal, host). A check reads the literal pattern
of the name, the wildcard, and the prefixes of the name. Its cost does not depend on the number of other ACLs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidemill.security.core.acls import EVERY_USER, WILDCARD, AclBinding, AclFilter
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

EVERY_OPERATION = sum(1 << each for each in Operation if each > Operation.ALL)
EVERY_BINDING = AclFilter()
_BY_BIT = tuple(Operation)
"""Operations have the numbers from 0 on."""
_ALL = 1 << Operation.ALL
_DESCRIBE = 1 << Operation.DESCRIBE
_DESCRIBE_CONFIGS = 1 << Operation.DESCRIBE_CONFIGS
_ALTER_CONFIGS = 1 << Operation.ALTER_CONFIGS
_IMPLY_DESCRIBE = 1 << Operation.READ | 1 << Operation.WRITE | 1 << Operation.DELETE | 1 << Operation.ALTER
_TYPES = len(ResourceType)


class PermissionBits(NamedTuple):
    """The operations that bindings of one principal and host allow and deny on one pattern, without implied ones."""

    allowed: int
    denied: int


class ResourceDecision(NamedTuple):
    """What the ACLs say about one principal, host and resource."""

    operations: int
    """The allowed operations as a bit set."""
    has_acls: bool
    """Whether any ACL names the resource, for whichever principal."""


Entries = dict[tuple[str, str], PermissionBits]
"""The bindings of one pattern by principal and host."""
_NOTHING = PermissionBits(0, 0)


def implied(allowed: int) -> int:
    """The operations that ALLOW bindings give, with those that they imply."""
    if allowed & _ALL:
        return EVERY_OPERATION
    if allowed & _IMPLY_DESCRIBE:
        allowed |= _DESCRIBE
    if allowed & _ALTER_CONFIGS:
        allowed |= _DESCRIBE_CONFIGS
    return allowed


def refused(denied: int) -> int:
    """The operations that DENY bindings refuse; they imply no others."""
    return EVERY_OPERATION if denied & _ALL else denied


class AclTable:
    """An immutable set of bindings. One that is not complete allows nothing: what is missing may be a DENY."""

    __slots__ = ("_count", "_lengths", "_literal", "_prefixed", "is_complete")

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._count = 0
        self.is_complete = True
        self._literal: list[dict[str, Entries]] = [{} for _ in range(_TYPES)]
        self._prefixed: list[dict[str, Entries]] = [{} for _ in range(_TYPES)]
        self._lengths: list[tuple[int, ...]] = [()] * _TYPES
        """The lengths of prefixes of each resource type."""
        self._apply(bindings, ())

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[AclBinding]:
        return self.find(EVERY_BINDING)

    def __contains__(self, binding: AclBinding) -> bool:
        entries = self._patterns(binding.pattern)[binding.resource_type].get(binding.name, {})
        found = entries.get((binding.principal, binding.host), _NOTHING)
        bits = found.allowed if binding.permission == Permission.ALLOW else found.denied
        return bool(bits >> binding.operation & 1)

    def with_changes(
        self, added: Iterable[AclBinding], removed: Iterable[AclBinding], *, is_complete: bool = True
    ) -> "AclTable":
        """A table with these changes; what is there already, or not there, stays as it is."""
        made = AclTable()
        made._count = self._count
        made.is_complete = is_complete
        made._literal, made._prefixed, made._lengths = list(self._literal), list(self._prefixed), list(self._lengths)
        made._apply(added, removed)
        return made

    def decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> ResourceDecision:
        """The operations that a principal may do on a resource."""
        if not self.is_complete:
            return ResourceDecision(0, has_acls=True)
        allowed = denied = 0
        has_acls = False
        for entries in self._covering(resource_type, name):
            has_acls = True
            for who in (principal, EVERY_USER):
                for where in (host, WILDCARD):
                    found = entries.get((who, where))
                    if found is not None:
                        allowed |= found.allowed
                        denied |= found.denied
        return ResourceDecision(implied(allowed) & ~refused(denied), has_acls)

    def allows_anywhere(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the bindings allow the operation on at least one name (Kafka's authorizeByResourceType).

        As in Kafka, only bindings of the operation itself or of ALL count.
        """
        if not self.is_complete:
            return False
        bits = 1 << operation | _ALL
        asker = (principal, host)
        literal = _names_with_bits(self._literal[resource_type], asker, bits)
        prefixed = _names_with_bits(self._prefixed[resource_type], asker, bits)
        if WILDCARD in literal.denied:
            return False
        if WILDCARD in literal.allowed:
            return True
        return any(
            not _has_prefix_in(name, prefixed.denied) for name in (literal.allowed - literal.denied) | prefixed.allowed
        )

    def find(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """The bindings that a filter selects, ordered by resource."""
        is_every = wanted == EVERY_BINDING
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED):
            for resource_type in ResourceType:
                for name, entries in self._named(pattern, resource_type, wanted):
                    for found in _bindings(resource_type, name, pattern, entries):
                        if is_every or wanted.covers(found):
                            yield found

    def about(self, resource_type: ResourceType, name: str) -> Iterator[AclBinding]:
        """The bindings that count for one resource: of its name, of the wildcard, and of prefixes of its name."""
        literal, prefixed = self._literal[resource_type], self._prefixed[resource_type]
        for exact in dict.fromkeys((name, WILDCARD)):
            yield from _bindings(resource_type, exact, PatternType.LITERAL, literal.get(exact, {}))
        for length in self._lengths[resource_type]:
            if length <= len(name):
                prefix = name[:length]
                yield from _bindings(resource_type, prefix, PatternType.PREFIXED, prefixed.get(prefix, {}))

    def counts(self) -> Counter[str]:
        """How many bindings each principal has."""
        found = Counter[str]()
        for kinds in (self._literal, self._prefixed):
            for patterns in kinds:
                for entries in patterns.values():
                    for (principal, _), bits in entries.items():
                        found[principal] += bits.allowed.bit_count() + bits.denied.bit_count()
        return found

    def _named(
        self, pattern: PatternType, resource_type: ResourceType, wanted: AclFilter
    ) -> Iterable[tuple[str, Entries]]:
        """The patterns that a filter may select; a filter with an exact name reads one."""
        if wanted.resource_type not in {ResourceType.ANY, resource_type}:
            return ()
        patterns = self._patterns(pattern)[resource_type]
        if wanted.name is not None and wanted.pattern != PatternType.MATCH:
            entries = patterns.get(wanted.name)
            return () if entries is None else ((wanted.name, entries),)
        return sorted(patterns.items())

    def _patterns(self, pattern: PatternType) -> list[dict[str, Entries]]:
        return self._prefixed if pattern == PatternType.PREFIXED else self._literal

    def _covering(self, resource_type: ResourceType, name: str) -> Iterator[Entries]:
        literal = self._literal[resource_type]
        if literal:
            found = literal.get(name)
            if found is not None:
                yield found
            found = literal.get(WILDCARD)
            if found is not None and name != WILDCARD:
                yield found
        prefixed = self._prefixed[resource_type]
        for length in self._lengths[resource_type]:
            if length > len(name):
                return
            found = prefixed.get(name[:length])
            if found is not None:
                yield found

    def _apply(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        """Change a table that is being made; shared dictionaries are copied once."""
        own: dict[tuple[int, int], dict[str, Entries]] = {}
        own_entries: dict[tuple[int, int, str], Entries] = {}
        for bindings, is_added in ((removed, False), (added, True)):
            for binding in bindings:
                self._change(binding, own, own_entries, is_added=is_added)
        for kind, pattern in own:
            if pattern == PatternType.PREFIXED:
                self._lengths[kind] = tuple(sorted({len(name) for name in self._prefixed[kind]}))

    def _change(
        self,
        binding: AclBinding,
        own: dict[tuple[int, int], dict[str, Entries]],
        own_entries: dict[tuple[int, int, str], Entries],
        *,
        is_added: bool,
    ) -> None:
        if (binding in self) == is_added:
            return
        place = (int(binding.resource_type), int(binding.pattern))
        if place not in own:
            kinds = self._patterns(binding.pattern)
            own[place] = kinds[binding.resource_type] = dict(kinds[binding.resource_type])
        patterns = own[place]
        key = (*place, binding.name)
        if key not in own_entries:
            own_entries[key] = patterns[binding.name] = dict(patterns.get(binding.name, {}))
        entries, who = own_entries[key], (binding.principal, binding.host)
        allowed, denied = entries.get(who, _NOTHING)
        bit = 1 << binding.operation
        if binding.permission == Permission.ALLOW:
            allowed ^= bit
        else:
            denied ^= bit
        if allowed or denied:
            entries[who] = PermissionBits(allowed, denied)
        else:
            del entries[who]
            if not entries:
                del patterns[binding.name], own_entries[key]
        self._count += 1 if is_added else -1


class _AllowedAndDenied(NamedTuple):
    allowed: frozenset[str]
    denied: frozenset[str]


def _names_with_bits(patterns: Mapping[str, Entries], asker: tuple[str, str], bits: int) -> _AllowedAndDenied:
    """The names of patterns on which the asker has an ALLOW or a DENY of one of these operations."""
    principal, host = asker
    allowed, denied = set(), set()
    for name, entries in patterns.items():
        for key in ((principal, host), (principal, WILDCARD), (EVERY_USER, host), (EVERY_USER, WILDCARD)):
            found = entries.get(key)
            if found is not None:
                if found.allowed & bits:
                    allowed.add(name)
                if found.denied & bits:
                    denied.add(name)
    return _AllowedAndDenied(frozenset(allowed), frozenset(denied))


def _has_prefix_in(name: str, prefixes: frozenset[str]) -> bool:
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))


def _bindings(resource_type: ResourceType, name: str, pattern: PatternType, entries: Entries) -> Iterator[AclBinding]:
    for (principal, host), bits in sorted(entries.items()):
        for permission, operations in ((Permission.ALLOW, bits.allowed), (Permission.DENY, bits.denied)):
            left = operations
            while left:
                operation = _BY_BIT[(left & -left).bit_length() - 1]
                left &= left - 1
                yield AclBinding(resource_type, name, pattern, principal, host, operation, permission)
