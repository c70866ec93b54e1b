"""Decides what a client may do, by the ACLs of this broker's copy.

Decisions are cached as bit sets of operations by principal, host and resource. A change of the ACLs drops the cache.
Super users are not cached: they are asked for only when the ACLs do not allow an operation. Only they read the topics
of scheduled records, timelines and reports: an ACL there would be one on every topic, whatever is denied on that.
"""

from collections.abc import Callable, Iterable

from tidemill.model.topics import PIPELINES, TIMELINES, WAITING
from tidemill.security.core.acl_table import EVERY_OPERATION, AclTable, ResourceDecision
from tidemill.security.core.acls import SUPPORTED_BITS, AclBinding
from tidemill.security.core.principal import Principal
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType

DECISIONS_MAX = 20_000
"""Cached decisions of one resource type; the cache is dropped when it is full."""
CACHED_NAME_CHARS_MAX = 300
"""Longer names are decided each time, so that clients cannot fill the cache with them."""
OF_EVERY_TOPIC = (WAITING, PIPELINES, TIMELINES)
"""The topics with scheduled records and timed messages of all topics and timelines, and with reports of pipelines."""
_READ = 1 << Operation.READ
_SAMPLE_NAME = "hardcode"
"""Kafka's name for "a resource that no ACL names"."""

_Decisions = dict[tuple[Principal, str, str], int]


class Authorizer:
    """The authorizer of one broker. `set_table` is called with every change of the ACLs."""

    def __init__(
        self,
        is_super: Callable[[Principal], bool],
        *,
        is_enabled: bool = True,
        allow_everyone_if_no_acl_found: bool = False,
    ) -> None:
        self.is_enabled = is_enabled
        self._is_super = is_super
        self._without_acls = EVERY_OPERATION if allow_everyone_if_no_acl_found else 0
        self._table = AclTable()
        self._decisions: list[_Decisions] = [{} for _ in ResourceType]
        self._anywhere: dict[tuple[Principal, str, int, int], bool] = {}
        self._generation = 0

    def set_table(self, table: AclTable) -> None:
        """Decide by these ACLs from now on."""
        self._table = table
        self._generation += 1
        self._decisions = [{} for _ in ResourceType]
        self._anywhere = {}

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal may do this from this host."""
        operations = self._decisions[resource_type].get((principal, host, name))
        if operations is None:
            operations = self._decide(principal, host, resource_type, name)
        return bool(operations >> operation & 1) or not self.is_enabled or self._is_super(principal)

    def allows_anywhere(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the principal may do this on at least one resource (Kafka's authorizeByResourceType)."""
        if self.allows(principal, host, operation, resource_type, _SAMPLE_NAME):
            return True
        key = (principal, host, int(operation), int(resource_type))
        known = self._anywhere.get(key)
        if known is None:
            known = self._table.allows_anywhere(str(principal), host, operation, resource_type)
            if len(self._anywhere) >= DECISIONS_MAX:
                self._anywhere.clear()
            self._anywhere[key] = known
        return known

    def operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """The operations that the resource type has and the principal may do, as Kafka's bit field."""
        supported = SUPPORTED_BITS.get(resource_type, 0)
        if not self.is_enabled or self._is_super(principal):
            return supported
        operations = self._decisions[resource_type].get((principal, host, name))
        if operations is None:
            operations = self._decide(principal, host, resource_type, name)
        return operations & supported

    def is_super(self, principal: Principal) -> bool:
        """Whether a principal may do everything, whatever the ACLs say."""
        return self._is_super(principal)

    def lost_operations(
        self, principal: Principal, host: str, added: Iterable[AclBinding], removed: Iterable[AclBinding]
    ) -> int:
        """The operations on the cluster that a principal would lose by a change of the ACLs, as a bit field."""
        if not self.is_enabled or self._is_super(principal):
            return 0
        after = self._table.with_changes(added, removed, is_complete=self._table.is_complete)
        now, later = (
            self._operations_of(each.decide(str(principal), host, ResourceType.CLUSTER, CLUSTER_NAME))
            for each in (self._table, after)
        )
        return now & ~later & SUPPORTED_BITS[ResourceType.CLUSTER]

    def rights_key(self, principal: Principal, host: str) -> tuple[object, ...]:
        """A key for responses that depend on rights: it changes when the rights of the principal may have changed."""
        return (principal, host, self._generation, self._is_super(principal))

    def _operations_of(self, found: ResourceDecision) -> int:
        return found.operations if found.has_acls else self._without_acls

    def _decide(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        found = self._table.decide(str(principal), host, resource_type, name)
        operations = self._operations_of(found)
        if resource_type is ResourceType.TOPIC and name in OF_EVERY_TOPIC:
            operations &= ~_READ
        if len(name) <= CACHED_NAME_CHARS_MAX:
            decisions = self._decisions[resource_type]
            if len(decisions) >= DECISIONS_MAX:
                decisions.clear()
            decisions[principal, host, name] = operations
        return operations
