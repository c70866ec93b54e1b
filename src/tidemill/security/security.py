"""The security of one broker: what servers ask before they serve a client."""

from dataclasses import dataclass, field
from typing import Protocol

from tidemill.security.core.principal import Principal
from tidemill.security.core.resources import Operation, ResourceType


class Authorization(Protocol):
    """Decides whether a client may do something."""

    is_enabled: bool

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal may do this from this host."""


class NoAuthorization:
    """Every client may do everything."""

    is_enabled = False

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return true."""
        _ = principal, host, operation, resource_type, name
        return True


@dataclass(slots=True)
class Security:
    """The parts of security."""

    authorizer: Authorization = field(default_factory=NoAuthorization)
