"""One row of the table of routes: the login and the rights that a route needs, and the shapes of its documents."""

from enum import Enum
from typing import Any, NamedTuple

from tidemill.security.core.resources import Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
PAGE = "text/html"
"""The content type of pages of the console."""


class LoginNeed(Enum):
    """Whether a client must log in, where the server authenticates its clients."""

    NONE = "no login"
    OPTIONAL = "no login; one shows more"
    LOGIN = "login"
    BROKER = "brokers of the cluster only"


class RouteRight(NamedTuple):
    """One right that a route checks."""

    operation: Operation
    resource_type: ResourceType
    note: str = ""
    is_required: bool = True
    """Whether a client without it is refused; otherwise the response leaves something out."""


class RouteShapes(NamedTuple):
    """What a route of the JSON API accepts and returns, as classes of `wire/http`; the OpenAPI document shows them."""

    summary: str
    """One sentence that begins with a verb."""
    response: type[Any] | None = None
    """None for a response without a document, or with one that is no JSON: see `media_type`."""
    query: type[Any] | None = None
    body: type[Any] | None = None
    media_type: str = "application/json"
    """The content type of a response that `response` does not describe."""
    more_types: tuple[str, ...] = ()
    """Other content types that the response can have if the request asks for them."""


class RouteAccess(NamedTuple):
    """One route."""

    method: str
    path: str
    login: LoginNeed
    rights: tuple[RouteRight, ...] = ()
    note: str = ""
    has_form: bool = False
    """Whether the token against forged requests is a field of the form, which the handler checks."""
    shapes: RouteShapes | None = None
    """For routes of the JSON API."""
    changes: bool = False
    """Whether the route changes something, so that a read-only console refuses it."""

    @property
    def name(self) -> str:
        """The method and the path."""
        return f"{self.method} {self.path}"


def optional(operation: Operation, resource_type: ResourceType, note: str) -> RouteRight:
    """A right without which the response leaves something out, or that the Kafka server checks."""
    return RouteRight(operation, resource_type, note, is_required=False)
