"""ACL bindings and filters with Kafka's rules: what is valid, what matches, and how they are stored.

A binding allows or denies one operation on one resource pattern to one principal from one host. DENY wins over ALLOW.
READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS, in ALLOW bindings only.
"""

import json
from enum import IntEnum
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple, TypeVar

from tidemill.model.errors import InvalidRequest
from tidemill.security.core.resources import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

WILDCARD = "*"
EVERY_USER = "User:*"
RESOURCE_NAME_CHARS_MAX = 1000
PRINCIPAL_CHARS_MAX = 1000
_SHOWN_CHARS = 60
_ID_CHARS = 32

_Enum = TypeVar("_Enum", bound=IntEnum)
_Op = Operation

SUPPORTED: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            _Op.READ,
            _Op.WRITE,
            _Op.CREATE,
            _Op.DELETE,
            _Op.ALTER,
            _Op.DESCRIBE,
            _Op.DESCRIBE_CONFIGS,
            _Op.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({_Op.READ, _Op.DELETE, _Op.DESCRIBE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset(
        {
            _Op.CREATE,
            _Op.ALTER,
            _Op.DESCRIBE,
            _Op.CLUSTER_ACTION,
            _Op.DESCRIBE_CONFIGS,
            _Op.ALTER_CONFIGS,
            _Op.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_Op.WRITE, _Op.DESCRIBE, _Op.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_Op.DESCRIBE}),
    ResourceType.USER: frozenset({_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS}),
}
"""The operations that each resource type has, as in Kafka 4. ALL is always accepted."""
SUPPORTED_BITS = {kind: sum(1 << operation for operation in every) for kind, every in SUPPORTED.items()}


class AclBinding(NamedTuple):
    """One ACL."""

    resource_type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    """As text: `User:alice`; `User:*` is every principal."""
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        resource = f"{self.pattern.name} {self.resource_type.name} {self.name[:_SHOWN_CHARS]}"
        who = f"{self.principal[:_SHOWN_CHARS]} from {self.host}"
        return f"{self.permission.name} {self.operation.name} on {resource} to {who}"


class AclFilter(NamedTuple):
    """Selects bindings. None and ANY match everything; MATCH matches every pattern that covers the name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def covers_resource(self, resource_type: int, name: str, pattern: int) -> bool:
        """Whether it selects bindings on this resource pattern."""
        if self.resource_type not in {ResourceType.ANY, resource_type}:
            return False
        if self.pattern not in {PatternType.ANY, PatternType.MATCH, pattern}:
            return False
        if self.name is None:
            return True
        if self.pattern != PatternType.MATCH:
            return self.name == name
        if pattern == PatternType.PREFIXED:
            return self.name.startswith(name)
        return name in {self.name, WILDCARD}

    def covers(self, binding: AclBinding) -> bool:
        """Whether it selects this binding."""
        return (
            self.covers_resource(binding.resource_type, binding.name, binding.pattern)
            and self.principal in {None, binding.principal}
            and self.host in {None, binding.host}
            and self.operation in {Operation.ANY, binding.operation}
            and self.permission in {Permission.ANY, binding.permission}
        )


def parse_binding(
    resource_type: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    """A binding from Kafka's numbers, or InvalidRequest with the part that is not valid."""
    binding = AclBinding(
        _member(ResourceType, resource_type, "resource type"),
        name,
        _member(PatternType, pattern, "pattern type"),
        principal,
        _address(host),
        _member(Operation, operation, "operation"),
        _member(Permission, permission, "permission"),
    )
    check_binding(binding)
    return binding


def check_binding(binding: AclBinding) -> None:
    """Reject a binding that could never match, or that Kafka rejects."""
    kind, operation = binding.resource_type, binding.operation
    supported = SUPPORTED.get(kind)
    if supported is None:
        raise InvalidRequest(f"an ACL cannot have resource type {kind.name}; use TOPIC, GROUP, CLUSTER or another type")
    if binding.pattern not in {PatternType.LITERAL, PatternType.PREFIXED}:
        raise InvalidRequest(f"an ACL cannot have pattern type {binding.pattern.name}; use LITERAL or PREFIXED")
    if binding.permission not in {Permission.ALLOW, Permission.DENY}:
        raise InvalidRequest(f"an ACL cannot have permission {binding.permission.name}; use ALLOW or DENY")
    if operation != Operation.ALL and operation not in supported:
        usable = ", ".join(["ALL", *(each.name for each in sorted(supported))])
        raise InvalidRequest(f"resource type {kind.name} has no operation {operation.name}; use one of {usable}")
    _check_name(binding)
    principal_kind, _, principal_name = binding.principal.partition(":")
    if not principal_kind or not principal_name:
        raise InvalidRequest(f"{binding.principal[:_SHOWN_CHARS]!r} is not a principal; write User:name")
    if len(binding.principal) > PRINCIPAL_CHARS_MAX:
        raise InvalidRequest(
            f"the principal has {len(binding.principal)} characters; an ACL may have {PRINCIPAL_CHARS_MAX}"
        )


def _check_name(binding: AclBinding) -> None:
    name = binding.name
    if not name:
        raise InvalidRequest("the resource name of an ACL is empty; write * for every resource of the type")
    if len(name) > RESOURCE_NAME_CHARS_MAX:
        raise InvalidRequest(f"the resource name has {len(name)} characters; an ACL may have {RESOURCE_NAME_CHARS_MAX}")
    if binding.resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidRequest(f"the only CLUSTER resource is {CLUSTER_NAME}, not {name[:_SHOWN_CHARS]!r}")


def parse_filter(
    resource_type: int,
    name: str | None,
    pattern: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """A filter from Kafka's numbers, or InvalidRequest with the part that is not valid."""
    return AclFilter(
        _member(ResourceType, resource_type, "resource type"),
        name,
        _member(PatternType, pattern, "pattern type"),
        principal,
        _normal_address(host),
        _member(Operation, operation, "operation"),
        _member(Permission, permission, "permission"),
    )


def _member(kind: type[_Enum], number: int, what: str) -> _Enum:
    """The member with a number. 0 is UNKNOWN in every enum: a value of a newer client."""
    try:
        found = kind(number)
    except ValueError:
        found = None
    if not found:
        raise InvalidRequest(f"{what} {number} of an ACL is not known; this broker knows 1 to {max(kind).value}")
    return found


def _address(host: str) -> str:
    """The host as connections report it; a host name would never match."""
    if host == WILDCARD:
        return host
    try:
        return str(ip_address(host))
    except ValueError:
        raise InvalidRequest(
            f"host {host[:_SHOWN_CHARS]!r} of an ACL is not an IP address; write an address, or * for every host"
        ) from None


def _normal_address(host: str | None) -> str | None:
    try:
        return host if host is None else _address(host)
    except InvalidRequest:
        return host  # selects no binding


def binding_id(binding: AclBinding) -> str:
    """The id of a binding, made from its content: the same binding is stored once."""
    return sha256(encode_binding(binding)).hexdigest()[:_ID_CHARS]


def encode_binding(binding: AclBinding) -> bytes:
    """The binding as it is stored."""
    fields = {
        "resource_type": binding.resource_type.name,
        "name": binding.name,
        "pattern": binding.pattern.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_binding(data: bytes) -> AclBinding:
    """A binding from its stored form; InvalidRequest when this version cannot read it."""
    try:
        fields = json.loads(data)
        binding = AclBinding(
            ResourceType[fields["resource_type"]],
            str(fields["name"]),
            PatternType[fields["pattern"]],
            str(fields["principal"]),
            str(fields["host"]),
            Operation[fields["operation"]],
            Permission[fields["permission"]],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"a stored ACL cannot be read: {error!r}") from None
    check_binding(binding)
    return binding
