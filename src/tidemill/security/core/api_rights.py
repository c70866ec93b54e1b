"""What a call checks, for the tables from which the page docs/reference/authorization.md is made."""

from typing import NamedTuple

from tidemill.security.core.resources import Operation, ResourceType


class ApiRight(NamedTuple):
    """One check of a call."""

    operation: Operation
    resource_type: ResourceType
    note: str = ""


class ApiRights(NamedTuple):
    """All checks of a call; none: `note` says why."""

    rights: tuple[ApiRight, ...]
    note: str = ""


def api_rights(*rights: ApiRight | tuple[Operation, ResourceType], note: str = "") -> ApiRights:
    """The checks of a call, of which those without a note may be written as pairs."""
    return ApiRights(tuple(ApiRight(*right) for right in rights), note)
