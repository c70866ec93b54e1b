"""Which ACLs the options of `tidemill acl` mean: resources, operations, principals and hosts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidemill.cli.errors import WrongUse
from tidemill.model.errors import InvalidRequest
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
"""The rights of --producer and --consumer, as in kafka-acls."""
_SEPARATORS = re.compile(r"[-_ ]")


class ResourcePattern(NamedTuple):
    """A resource, or all resources whose names begin alike."""

    kind: ResourceType
    name: str
    pattern: PatternType


class AclSelection(NamedTuple):
    """The options of one command, parsed."""

    principals: tuple[str, ...]
    resources: tuple[ResourcePattern, ...]
    operations: tuple[Operation, ...] = ()
    producer: bool = False
    consumer: bool = False
    hosts: tuple[str, ...] = ()
    permission: Permission = Permission.ALLOW

    def bindings(self) -> list[AclBinding]:
        """Every ACL to create. WrongUse when an operation does not exist for a resource."""
        if not self.resources:
            raise WrongUse("name what the ACL is about: --topic, --timeline, --group, --transactional-id or --cluster")
        if not (self.operations or self.producer or self.consumer):
            raise WrongUse("give --operation, such as --operation read,write, or --producer or --consumer")
        if self.consumer and not self._has(ResourceType.TOPIC):
            raise WrongUse("--consumer needs --topic, and --group for a consumer group; or use --timeline")
        if self.producer and not self._has(ResourceType.TOPIC):
            raise WrongUse("--producer needs --topic or --timeline")
        found = [
            AclBinding(*resource, principal, host, operation, self.permission)
            for resource in self.resources
            for operation in self.operations_on(resource.kind)
            for principal in self.principals
            for host in self.hosts or (WILDCARD,)
        ]
        try:
            for binding in found:
                check_binding(binding)
        except InvalidRequest as error:
            raise WrongUse(str(error)) from None
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
        """Whether to revoke an ACL. An option that is not given selects everything."""
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
            raise WrongUse("the name of a user is empty; write a name, or '*' for every user")
        found.append(principal)
    return tuple(dict.fromkeys(found))


def parse_resources(
    topics: Sequence[str], groups: Sequence[str], transactional_ids: Sequence[str], *, cluster: bool, prefix: bool
) -> tuple[ResourcePattern, ...]:
    """The resources that options name. Timelines are topics for ACLs."""
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    named = [
        *((ResourceType.TOPIC, name) for name in topics),
        *((ResourceType.GROUP, name) for name in groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids),
    ]
    for _, name in named:
        if prefix and name == WILDCARD:
            raise WrongUse("with --prefix, '*' means names that begin with *; leave out --prefix to mean every name")
    whole = [ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)] if cluster else []
    return tuple(dict.fromkeys([*(ResourcePattern(kind, name, pattern) for kind, name in named), *whole]))


def parse_operations(items: Iterable[str]) -> tuple[Operation, ...]:
    """Operations as Kafka's tools write them, in any spelling: DescribeConfigs, describe-configs."""
    known = {_plain(each.name): each for each in _usable()}
    found = []
    for item in (part.strip() for text in items for part in text.split(",")):
        if _plain(item) not in known:
            names = ", ".join(word(each) for each in _usable())
            raise WrongUse(f"{item[:60]!r} is not an operation; use one of {names}")
        found.append(known[_plain(item)])
    return tuple(dict.fromkeys(found))


def word(member: IntEnum) -> str:
    """A member of an enum as commands write it."""
    return member.name.lower().replace("_", "-")


def _usable() -> Iterator[Operation]:
    supported = set[Operation]().union(*SUPPORTED.values())
    yield from (each for each in Operation if each in supported or each == Operation.ALL)


def _plain(text: str) -> str:
    return _SEPARATORS.sub("", text).lower()
