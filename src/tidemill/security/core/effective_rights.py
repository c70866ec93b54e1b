"""Explains what a principal may do on a resource: each operation, and the ACLs that allow or deny it."""

from collections.abc import Iterable
from typing import NamedTuple

from tidemill.security.core.acl_table import AclTable, implied, refused
from tidemill.security.core.acls import EVERY_USER, SUPPORTED, WILDCARD, AclBinding
from tidemill.security.core.resources import Operation, Permission, ResourceType


class OperationVerdict(NamedTuple):
    """One operation. `reasons` are the ACLs that decide: those that deny it, or else those that allow it."""

    operation: Operation
    is_allowed: bool
    reasons: tuple[AclBinding, ...]


class RightsExplanation(NamedTuple):
    """All operations of a resource type, and the ACLs that count from other addresses only."""

    verdicts: tuple[OperationVerdict, ...]
    elsewhere: tuple[AclBinding, ...]


def explain_rights(
    table: AclTable, principal: str, host: str, resource_type: ResourceType, name: str
) -> RightsExplanation:
    """What the ACLs say about a principal at an address; the host `*` asks what holds at every address."""
    who = {principal, EVERY_USER}
    about = [binding for binding in table.about(resource_type, name) if binding.principal in who]
    here = [binding for binding in about if binding.host in {host, WILDCARD}]
    elsewhere = tuple(binding for binding in about if binding.host not in {host, WILDCARD})
    operations = sorted(SUPPORTED.get(resource_type, frozenset()))
    return RightsExplanation(tuple(_verdict(each, here) for each in operations), elsewhere)


def _verdict(operation: Operation, bindings: Iterable[AclBinding]) -> OperationVerdict:
    deciding = [binding for binding in bindings if _is_about(binding, operation)]
    denies = tuple(binding for binding in deciding if binding.permission is Permission.DENY)
    if denies:
        return OperationVerdict(operation, is_allowed=False, reasons=denies)
    return OperationVerdict(operation, is_allowed=bool(deciding), reasons=tuple(deciding))


def _is_about(binding: AclBinding, operation: Operation) -> bool:
    bits = 1 << binding.operation
    given = refused(bits) if binding.permission is Permission.DENY else implied(bits)
    return bool(given >> operation & 1)
