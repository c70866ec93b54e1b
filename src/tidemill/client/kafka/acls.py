"""Lists, creates and deletes ACLs. They are plain fields with Kafka's numbers: the meaning belongs to the caller."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from tidemill.client.kafka.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import KafkaError, of_code

PER_REQUEST = 500
"""The most ACLs in one request; brokers reject very long lists."""


class AclFields(NamedTuple):
    """One ACL."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilterFields(NamedTuple):
    """Selects ACLs. None, and 1 for a number, match everything."""

    resource_type: int = 1
    name: str | None = None
    pattern: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


def describe(router: RequestRouter, wanted: AclFilterFields) -> list[AclFields]:
    """The ACLs that a filter selects, sorted."""

    def ask() -> list[AclFields]:
        response = router.anyone().call(plain(DESCRIBE_ACLS, _filter(wanted))).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        return sorted(
            AclFields(
                int(resource.resource_type),
                resource.resource_name,
                int(resource.pattern_type),
                acl.principal,
                acl.host,
                int(acl.operation),
                int(acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        )

    return router.persist("list ACLs", ask)


def create(router: RequestRouter, bindings: Sequence[AclFields]) -> list[KafkaError | None]:
    """Create ACLs. Returns the error of each, or None, in their order. An ACL that exists is no error."""

    def send(part: Sequence[AclFields]) -> list[KafkaError | None]:
        creations = [
            {
                "resource_type": each.resource_type,
                "resource_name": each.name,
                "resource_pattern_type": each.pattern,
                "principal": each.principal,
                "host": each.host,
                "operation": each.operation,
                "permission_type": each.permission,
            }
            for each in part
        ]
        response = router.anyone().call(plain(CREATE_ACLS, {"creations": creations})).message()
        return [_error(each) for each in response.results]

    return [error for part in _parts(bindings) for error in router.persist("create ACLs", partial(send, part))]


def delete(router: RequestRouter, bindings: Sequence[AclFields]) -> list[KafkaError | None]:
    """Delete exactly these ACLs. Returns the error of each, or None, in their order. A missing ACL is no error."""

    def send(part: Sequence[AclFields]) -> list[KafkaError | None]:
        filters = [_filter(AclFilterFields(*each)) for each in part]
        response = router.anyone().call(plain(DELETE_ACLS, {"filters": filters})).message()
        return [
            next((error for each in (result, *result.matching_acls) if (error := _error(each)) is not None), None)
            for result in response.filter_results
        ]

    return [error for part in _parts(bindings) for error in router.persist("delete ACLs", partial(send, part))]


def _parts(bindings: Sequence[AclFields]) -> list[Sequence[AclFields]]:
    return [bindings[start : start + PER_REQUEST] for start in range(0, len(bindings), PER_REQUEST)]


def _filter(wanted: AclFilterFields) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _error(result: Any) -> KafkaError | None:
    return of_code(result.error_code, result.error_message or "") if result.error_code else None
