"""What one client may do: questions to the authorizer, with errors and the audit log. gRPC and HTTP ask it."""

from typing import Any

from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    KafkaError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tidemill.security.core.principal import Principal
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.security.security import Security

NAME_SHOWN_CHARS = 100
_DENIALS: dict[ResourceType, type[KafkaError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}


class ClientRights:
    """The rights of a principal at a host."""

    __slots__ = ("_security", "host", "principal")

    def __init__(self, security: Security, principal: Principal, host: str) -> None:
        self._security = security
        self.principal = principal
        self.host = host

    @property
    def are_checked(self) -> bool:
        """Whether ACLs are checked at all."""
        return self._security.authorizer.is_enabled

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this."""
        authorizer = self._security.authorizer
        return not authorizer.is_enabled or authorizer.allows(self.principal, self.host, operation, resource_type, name)

    def allows_anywhere(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do this on at least one resource of the type."""
        authorizer = self._security.authorizer
        return not authorizer.is_enabled or authorizer.allows_anywhere(
            self.principal, self.host, operation, resource_type
        )

    def denial(self, operation: Operation, resource_type: ResourceType, name: str) -> KafkaError | None:
        """The error if the client may not do this. A denial is written to the audit log."""
        if self.allows(operation, resource_type, name):
            return None
        self._security.audit.authorization_denied(self.principal, self.host, operation, resource_type, name)
        return _DENIALS.get(resource_type, ClusterAuthorizationFailed)(
            f"{self.principal} may not {operation.name} {resource_type.name} {name[:NAME_SHOWN_CHARS]}"
        )

    def check(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise the error of the resource type if the client may not do this."""
        error = self.denial(operation, resource_type, name)
        if error is not None:
            raise error

    def check_topic(self, operation: Operation, name: str) -> None:
        """Raise TopicAuthorizationFailed if the client may not do this with a topic, or with a timeline."""
        self.check(operation, ResourceType.TOPIC, name)

    def check_topic_or_cluster(self, operation: Operation, name: str) -> None:
        """The same, where a right on the cluster is enough for every topic."""
        if not self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            self.check_topic(operation, name)

    def changed(self, what: str, /, **fields: Any) -> None:
        """Write a change to the audit log, where clients have names; `what` is a fixed word like `topic_deleted`."""
        if self.are_checked:
            self._security.audit.changed(self.principal, self.host, what, **fields)
