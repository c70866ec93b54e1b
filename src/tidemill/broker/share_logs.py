"""The log of a partition as share groups read it, and the settings of a group as share groups use them."""

from collections.abc import Callable
from functools import lru_cache

from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.group_overrides import GroupOverrides
from tidemill.model.group_settings import EARLIEST, GroupSettings, retry_delays_ms
from tidemill.shares.core.delivery_policy import DeliveryPolicy, RetryBackoff
from tidemill.shares.interface import ReadBatches
from tidemill.shares.live_partition import SharePolicy
from tidemill.streams.partition import Partition


class PartitionShareLog:
    """One partition that this broker leads."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""
        return self._partition.leads

    @property
    def leader_epoch(self) -> int:
        """The epoch that it leads in."""
        return self._partition.leader_epoch

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self._partition.log_start_offset

    def end_offset(self, *, committed: bool) -> int:
        """The offset after the last record that a reader may see."""
        return self._partition.last_stable_offset if committed else self._partition.high_watermark

    async def read(self, offset: int, max_bytes: int, *, committed: bool) -> ReadBatches:
        """Batches from an offset on, at least one if there is any."""
        found = await self._partition.reader.read(offset, max_bytes, committed=committed)
        aborted = [(each.producer_id, each.first_offset) for each in found.aborted]
        return ReadBatches(found.records, aborted)

    async def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older; None without one."""
        found = await self._partition.reader.offset_at(timestamp_ms)
        return None if found.offset < 0 else found.offset

    async def settled(self) -> None:
        """Return when the end of the log is known, after a change of leaders."""
        await self._partition.leader.end_settled()

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when a reader may see more."""
        return self._partition.reader.watch(wake)


class ShareGroupSettings:
    """The settings of groups for share partitions."""

    def __init__(self, overrides: GroupOverrides, view: ClusterView) -> None:
        self._overrides = overrides
        self._view = view

    def open_log(self, topic: str, index: int) -> PartitionShareLog:
        """The log of a partition. NotLeaderOrFollower on another broker."""
        partition = self._view.partition(topic, index)
        partition.check_leads()
        return PartitionShareLog(partition)

    def policy(self, group_id: str) -> SharePolicy:
        """How the records of a group are delivered."""
        return _policy(self._overrides.of(group_id))

    def start(self, group_id: str) -> tuple[bool, int | None]:
        """Where a group begins to read: at the first record or not, or so many milliseconds before now."""
        settings = self._overrides.of(group_id)
        return settings.share_auto_offset_reset == EARLIEST, settings.reset_before_ms


@lru_cache(maxsize=1_000)
def _policy(settings: GroupSettings) -> SharePolicy:
    delivery = DeliveryPolicy(
        lock_ms=settings.share_record_lock_duration_ms,
        deliveries_max=settings.share_delivery_count_limit,
        locks_max=settings.share_partition_max_record_locks,
        backoff=RetryBackoff(retry_delays_ms(settings.tidemill_share_retry_backoff_ms)),
    )
    return SharePolicy(delivery, settings.is_committed, settings.share_renew_acknowledge_enable)
