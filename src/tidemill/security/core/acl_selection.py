"""Which ACLs a short description means: resources, operations or presets, principals and hosts.

`tidemill acl` and the console describe ACLs in this way.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from ipaddress import ip_address
from typing import NamedTuple

from tidemill.security.core.acls import SUPPORTED, WILDCARD, AclBinding, check_binding
from tidemill.security.core.principal import USER
from tidemill.security.core.resources import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
"""The rights of a producer and of a consumer, as in kafka-acls."""
_SEPARATORS = re.compile(r"[-_ ]")


class SelectionProblem(Enum):
    """What a description lacks."""

    NO_RESOURCE = "name what the ACL is about: topics, timelines, groups, transactional ids or the cluster"
    NO_OPERATION = "give operations, or ask for what a producer or a consumer needs"
    CONSUMER_WITHOUT_TOPIC = "a consumer needs a topic or a timeline, and a group if it commits offsets"
    PRODUCER_WITHOUT_TOPIC = "a producer needs a topic or a timeline"
    PREFIX_OF_EVERYTHING = "with prefix, * means names that begin with *; leave out prefix to mean every name"
    NO_USER = "the name of a user is empty; write a name, or * for every user"
    DENIED_PRESET = "a DENY needs operations; what a producer or a consumer needs is for grants"


class InvalidSelection(Exception):
    """A description that means no ACL. `problem` is None for one that has its own sentence."""

    def __init__(self, problem: SelectionProblem | None, reason: str = "") -> None:
        super().__init__(reason or ("" if problem is None else problem.value))
        self.problem = problem


class ResourcePattern(NamedTuple):
    """A resource, or all resources whose names begin alike."""

    kind: ResourceType
    name: str
    pattern: PatternType


class AclSelection(NamedTuple):
    """A parsed description."""

    principals: tuple[str, ...]
    resources: tuple[ResourcePattern, ...]
    operations: tuple[Operation, ...] = ()
    producer: bool = False
    consumer: bool = False
    hosts: tuple[str, ...] = ()
    permission: Permission = Permission.ALLOW

    def bindings(self) -> list[AclBinding]:
        """Every ACL to create; InvalidRequest when an operation does not exist for a resource."""
        if self.permission is Permission.DENY and (self.producer or self.consumer):
            raise InvalidSelection(SelectionProblem.DENIED_PRESET)
        if not self.resources:
            raise InvalidSelection(SelectionProblem.NO_RESOURCE)
        if not (self.operations or self.producer or self.consumer):
            raise InvalidSelection(SelectionProblem.NO_OPERATION)
        if self.consumer and not self._has(ResourceType.TOPIC):
            raise InvalidSelection(SelectionProblem.CONSUMER_WITHOUT_TOPIC)
        if self.producer and not self._has(ResourceType.TOPIC):
            raise InvalidSelection(SelectionProblem.PRODUCER_WITHOUT_TOPIC)
        found = [
            AclBinding(*resource, principal, host, operation, self.permission)
            for resource in self.resources
            for operation in self.operations_on(resource.kind)
            for principal in self.principals
            for host in self.hosts or (WILDCARD,)
        ]
        for binding in found:
            check_binding(binding)
        return list(dict.fromkeys(found))

    def operations_on(self, kind: ResourceType) -> tuple[Operation, ...]:
        """The operations on a resource of this type."""
        named = [
            *self.operations,
            *(PRODUCER.get(kind, ()) if self.producer else ()),
            *(CONSUMER.get(kind, ()) if self.consumer else ()),
        ]
        return tuple(dict.fromkeys(named))

    def selects(self, binding: AclBinding) -> bool:
        """Whether to revoke an ACL. What is not given selects everything."""
        if self.principals and binding.principal not in self.principals:
            return False
        if self.resources and (binding.resource_type, binding.name, binding.pattern) not in self.resources:
            return False
        is_about_operations = self.operations or self.producer or self.consumer
        if is_about_operations and binding.operation not in self.operations_on(binding.resource_type):
            return False
        if self.hosts and binding.host not in self.hosts:
            return False
        return self.permission in {Permission.ANY, binding.permission}

    def _has(self, kind: ResourceType) -> bool:
        return any(resource.kind == kind for resource in self.resources)


def parse_principals(names: Iterable[str]) -> tuple[str, ...]:
    """Principals from the names of users: `alice` and `User:alice` mean the same."""
    found = []
    for name in names:
        principal = name if name.startswith(f"{USER}:") else f"{USER}:{name}"
        if principal == f"{USER}:":
            raise InvalidSelection(SelectionProblem.NO_USER)
        found.append(principal)
    return tuple(dict.fromkeys(found))


def parse_resources(
    topics: Sequence[str], groups: Sequence[str], transactional_ids: Sequence[str], *, cluster: bool, prefix: bool
) -> tuple[ResourcePattern, ...]:
    """Named resources. Timelines are topics for ACLs."""
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    named = [
        *((ResourceType.TOPIC, name) for name in topics),
        *((ResourceType.GROUP, name) for name in groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids),
    ]
    for _, name in named:
        if prefix and name == WILDCARD:
            raise InvalidSelection(SelectionProblem.PREFIX_OF_EVERYTHING)
    whole = [ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)] if cluster else []
    return tuple(dict.fromkeys([*(ResourcePattern(kind, name, pattern) for kind, name in named), *whole]))


def parse_operations(items: Iterable[str]) -> tuple[Operation, ...]:
    """Operations as Kafka's tools write them, in any spelling: DescribeConfigs, describe-configs."""
    known = {_plain(each.name): each for each in _usable()}
    found = []
    for item in (part.strip() for text in items for part in text.split(",")):
        if _plain(item) not in known:
            names = ", ".join(word(each) for each in _usable())
            raise InvalidSelection(None, f"{item[:60]!r} is not an operation; use one of {names}")
        found.append(known[_plain(item)])
    return tuple(dict.fromkeys(found))


def parse_hosts(items: Iterable[str]) -> tuple[str, ...]:
    """Addresses in the form that connections report."""
    hosts = []
    for text in items:
        try:
            hosts.append(text if text == WILDCARD else str(ip_address(text)))
        except ValueError:
            reason = f"host {text[:60]} is not an IP address; ACLs do not know host names"
            raise InvalidSelection(None, reason) from None
    return tuple(dict.fromkeys(hosts))


def word(member: IntEnum) -> str:
    """A member of an enum as commands and the API write it."""
    return member.name.lower().replace("_", "-")


def _usable() -> Iterator[Operation]:
    supported = set[Operation]().union(*SUPPORTED.values())
    yield from (each for each in Operation if each in supported or each == Operation.ALL)


def _plain(text: str) -> str:
    return _SEPARATORS.sub("", text).lower()
