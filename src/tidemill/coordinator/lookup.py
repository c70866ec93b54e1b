"""Which broker coordinates a group or a transactional id."""

from tidemill.coordinator.internal_topics import InternalTopics
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.topics import GROUP_OFFSETS, SHARE_STATE, TRANSACTION_STATE
from tidemill.shares.coordinator import ShareCoordinator
from tidemill.shares.core.durable_state import ShareKey
from tidemill.transactions.coordinator import TransactionCoordinator


class CoordinatorLookup:
    """The leader of a partition of an internal topic coordinates what is kept in it."""

    def __init__(
        self,
        internal: InternalTopics,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        shares: ShareCoordinator,
    ) -> None:
        self._internal = internal
        self._groups = groups
        self._transactions = transactions
        self._shares = shares

    def of_group(self, group_id: str) -> int:
        """The broker that coordinates a group; -1 when there is none at the moment."""
        return self._internal.leader_of(GROUP_OFFSETS, self._groups.partition_of(group_id))

    def of_transaction(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id; -1 when there is none at the moment."""
        return self._internal.leader_of(TRANSACTION_STATE, self._transactions.partition_of(transactional_id))

    def of_share(self, key: ShareKey) -> int:
        """The broker that coordinates a share partition; -1 when there is none at the moment."""
        return self._internal.leader_of(SHARE_STATE, self._shares.partition_of(key))

    async def ensure(self, topic: str) -> None:
        """Create an internal topic, where its leader has to be known before the first record."""
        await self._internal.ensure(topic)
