"""DescribeAcls, CreateAcls and DeleteAcls. Each binding or filter of a request succeeds or fails by itself.

They need DESCRIBE or ALTER on the cluster. Where no authorizer is on, the error is SECURITY_DISABLED.
"""

from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import SecurityDisabled, TidemillError
from tidemill.security.acls import Acls
from tidemill.security.core.acls import AclBinding, AclFilter, parse_binding, parse_filter
from tidemill.security.core.resources import Operation
from tidemill.servers.kafka.api import Call, error_code, error_message

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest
    from kio.schema.create_acls.v3.response import CreateAclsResponse
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest
    from kio.schema.delete_acls.v3.response import DeleteAclsResponse
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest
    from kio.schema.describe_acls.v3.response import DescribeAclsResponse


def _acls(call: Call, operation: Operation) -> Acls:
    """The ACLs of a client that may read or change them."""
    security = call.broker.security
    if not security.authorizer.is_enabled or security.acls is None:
        raise SecurityDisabled("no authorizer is on; set authorizer=acl, or add a listener that authenticates")
    call.check_cluster(operation)
    return security.acls


async def describe_acls(call: Call["DescribeAclsResponse"], request: "DescribeAclsRequest") -> "DescribeAclsResponse":
    """The bindings that a filter selects, by resource."""
    acls = _acls(call, Operation.DESCRIBE)
    found = await call.in_worker(acls.find, _filter(request))
    resources = [
        call.part(
            "DescribeAclsResource",
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=tuple(_description(call, binding) for binding in bindings),
        )
        async for (kind, name, pattern), bindings in call.in_slices(groupby(found, lambda binding: binding[:3]))
    ]
    return call.response(resources=tuple(resources))


def _description(call: Call, binding: AclBinding) -> Any:
    return call.part(
        "AclDescription",
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


async def create_acls(call: Call["CreateAclsResponse"], request: "CreateAclsRequest") -> "CreateAclsResponse":
    """Store bindings."""
    errors: list[TidemillError | None] = []
    try:
        acls = _acls(call, Operation.ALTER)
        errors = await _created(call, acls, request)
    except TidemillError as error:
        errors = [error] * len(request.creations)
    results = [
        call.part("AclCreationResult", error_code=error_code(error), error_message=error_message(error))
        async for error in call.in_slices(errors)
    ]
    return call.response(results=tuple(results))


async def _created(call: Call, acls: Acls, request: "CreateAclsRequest") -> list[TidemillError | None]:
    parsed: list[AclBinding | TidemillError] = []
    async for asked in call.in_slices(request.creations):
        try:
            parsed.append(_binding(asked))
        except TidemillError as error:
            parsed.append(error)
    valid = [each for each in parsed if isinstance(each, AclBinding)]
    stored = await acls.create(valid)
    for binding, failure in zip(valid, stored, strict=True):
        if failure is None:
            call.changed("acl_created", acl=str(binding))
    outcomes = iter(stored)
    return [next(outcomes) if isinstance(each, AclBinding) else each for each in parsed]


def _binding(asked: Any) -> AclBinding:
    return parse_binding(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


async def delete_acls(call: Call["DeleteAclsResponse"], request: "DeleteAclsRequest") -> "DeleteAclsResponse":
    """Delete the bindings that filters select; the response lists them."""
    parsed: list[AclFilter | TidemillError] = []
    try:
        acls = _acls(call, Operation.ALTER)
        async for asked in call.in_slices(request.filters):
            try:
                parsed.append(_filter(asked))
            except TidemillError as error:
                parsed.append(error)
        deleted = iter(await acls.delete([each for each in parsed if isinstance(each, AclFilter)]))
    except TidemillError as error:
        return call.response(filter_results=tuple(_refused(call, error) for _ in request.filters))
    results = [
        _refused(call, each) if isinstance(each, TidemillError) else await _deleted(call, next(deleted))
        async for each in call.in_slices(parsed)
    ]
    return call.response(filter_results=tuple(results))


def _filter(asked: Any) -> AclFilter:
    return parse_filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _refused(call: Call, error: TidemillError) -> Any:
    return call.part(
        "DeleteAclsFilterResult", error_code=error_code(error), error_message=error_message(error), matching_acls=()
    )


async def _deleted(call: Call, bindings: dict[AclBinding, TidemillError | None]) -> Any:
    matching = []
    async for binding, error in call.in_slices(bindings.items()):
        if error is None:
            call.changed("acl_deleted", acl=str(binding))
        matching.append(
            call.part(
                "DeleteAclsMatchingAcl",
                error_code=error_code(error),
                error_message=error_message(error),
                resource_type=binding.resource_type,
                resource_name=binding.name,
                pattern_type=binding.pattern,
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
        )
    return call.part("DeleteAclsFilterResult", matching_acls=tuple(matching))
