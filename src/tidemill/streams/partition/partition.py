"""A partition: its log and state, and the leader, follower and reader sides that serve it.

In a cluster `leader.lead` and `follower.follow` set the role of this broker in each epoch. An idle
partition has no task. Once the disk has failed a flush, every call raises KafkaStorageError until the broker restarts.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.core.insync import Term
from tidemill.streams.core.leader import Leader
from tidemill.streams.core.producers import EXPIRY_MS, ProducerSnapshot
from tidemill.streams.interface import StreamLog
from tidemill.streams.maintenance import ALL_TASKS, MaintenanceTasks, PartitionMaintenance, Random
from tidemill.streams.partition.follower import PartitionFollower
from tidemill.streams.partition.leader import PartitionLeader
from tidemill.streams.partition.reader import PartitionReader
from tidemill.streams.partition.replica import ReplicaState
from tidemill.streams.reservation import Reservation

NO_LEADER = -1


class Partition:
    """One replica of one partition."""

    def __init__(
        self,
        log: StreamLog,
        topic: str,
        index: int,
        leader: Leader,
        clock: Callable[[], int],
        one_cleaning: asyncio.Lock,
        random: Random,
    ) -> None:
        self.topic = topic
        self.index = index
        self._log = log
        self._replica = replica = ReplicaState(log, topic, index, leader, clock)
        self._maintenance = PartitionMaintenance(
            log,
            leader,
            replica.writer,
            replica.flusher,
            name=f"{topic}-{index}",
            state=replica.checkpoint_state,
            one_cleaning=one_cleaning,
            random=random,
        )
        self.leader = PartitionLeader(replica, self._maintenance)
        self.follower = PartitionFollower(replica, self._maintenance)
        self.reader = PartitionReader(replica)

    @property
    def settings(self) -> TopicSettings:
        """The settings of the topic."""
        return self._log.settings

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get."""
        return self._replica.leader.epoch

    @property
    def term(self) -> Term | None:
        """The newest agreement about this partition that is known here; None on a single broker."""
        return self._replica.term

    @property
    def leader_id(self) -> int:
        """The broker that leads; -1 when there is none, or on a single broker."""
        return self._replica.term.leader if self._replica.term is not None else NO_LEADER

    @property
    def leads(self) -> bool:
        """Whether this broker serves producers and consumers of the partition."""
        return self._replica.leader.leads

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next batch gets."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        """Readers see the records below it."""
        return self._replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records see the records below it."""
        return self._replica.last_stable_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in the log."""
        return self._log.size_bytes

    @property
    def segment_count(self) -> int:
        """Segments of the log."""
        return len(self._log.segments())

    @property
    def failed(self) -> BaseException | None:
        """Why the partition is fenced, if it is."""
        return self._log.failed

    @property
    def away(self) -> bool:
        """Whether the storage of the records cannot be reached at the moment."""
        return self._log.away

    def check_leads(self) -> None:
        """NotLeaderOrFollower unless this broker leads the partition."""
        self._replica.check_leads()

    def reserve(self, given_offset: int, record: Callable[[int], Awaitable[int]]) -> None:
        """Record an upper bound of the offsets with `record` before records are acknowledged.

        `given_offset` is recorded already.
        """
        self._replica.writer.reservation = Reservation(given_offset, self._replica.flusher.reach, record)

    def apply_settings(self, settings: TopicSettings) -> None:
        """Use new settings of the topic from now on."""
        self._log.settings = settings

    async def maintain(self, now_ms: int, expiry_ms: int = EXPIRY_MS, tasks: MaintenanceTasks = ALL_TASKS) -> None:
        """Run the tasks that are due: retention, closing of segments, flush.ms, checkpoint, and expiry of producers.

        A producer expires after `expiry_ms` without a batch.
        """
        replica = self._replica
        if not replica.is_closed and self._log.failed is None:
            await self._maintenance.tend(now_ms, replica.high_watermark, replica.stable_offset, expiry_ms, tasks)

    def producers(self) -> list[ProducerSnapshot]:
        """Every producer that the partition remembers."""
        return self._replica.leader.producers.snapshots()

    async def close(self) -> None:
        """Write queued batches, flush, and write a checkpoint, so that the next start need not scan."""
        if self._replica.is_closed:
            return
        await self._stop()
        await self._maintenance.close()
        await self._log.close()

    async def delete(self) -> None:
        """Close and remove everything."""
        await self._stop()
        await self._log.delete()

    async def cleaned(self) -> None:
        """Return when no compaction of this partition runs."""
        await self._maintenance.cleaned()

    async def _stop(self) -> None:
        """Accept no more batches and finish the writes in progress."""
        replica = self._replica
        replica.is_closed = True
        if replica.replication is not None:
            await replica.replication.end(replica.not_leader())
        replica.wake()
        await self._maintenance.stop()
        await replica.writer.settled()
        await replica.flusher.settled()
