"""The follower side of a partition: it asks its leader for batches and stores the responses.

Producers, transactions and epochs are the same on all replicas, because all learn them from the same batches. A
response counts only while leader, epoch and end of the log are those of its request.
"""

from tidemill.streams.core.follower import Diverged, OutOfRange, Question, question, still_true
from tidemill.streams.core.insync import Term
from tidemill.streams.follower_log import Copied, FollowerLog
from tidemill.streams.maintenance import PartitionMaintenance
from tidemill.streams.partition.replica import ReplicaState


class PartitionFollower:
    """Follows the leader of one partition."""

    def __init__(self, replica: ReplicaState, maintenance: PartitionMaintenance) -> None:
        self._replica = replica
        self._maintenance = maintenance
        self._copies = FollowerLog(
            replica.log, replica.leader, replica.writer, replica.flusher, maintenance, replica.clock
        )

    async def follow(self, term: Term) -> None:
        """Follow the leader of this term, or none; an older term changes nothing."""
        replica = self._replica
        known = replica.term
        if replica.is_closed or (known is not None and not term.newer_than(known)):
            return
        if known is not None and known.epoch == term.epoch and not replica.leader.leads:
            replica.term = term
            return
        await replica.change_role(term)
        async with replica.writer.exclusive():
            replica.load_high_watermark(known)
            replica.move_high_watermark(min(replica.high_watermark, replica.log.end_offset))

    async def ask(self) -> Question | None:
        """The next request to the leader, after everything is flushed; None when there is no leader to ask."""
        replica = self._replica
        if self._followed() is None:
            return None
        if replica.waits_for_flush:
            await replica.flusher.reach(replica.log.end_offset)
        term = self._followed()
        return None if term is None else question(term, replica.leader.epochs, replica.log.end_offset)

    async def take(self, asked: Question, answer: Copied | Diverged | OutOfRange, leader_start_offset: int) -> None:
        """Store the response of the leader; a response that comes too late is dropped."""
        if self._followed() is not None:
            await self._maintenance.to_the_end(self._take(asked, answer, leader_start_offset))

    async def _take(self, asked: Question, answer: Copied | Diverged | OutOfRange, leader_start_offset: int) -> None:
        replica = self._replica
        if not isinstance(answer, Copied):
            await self._cut_to_leader(asked, answer, leader_start_offset)
            return
        async with replica.writer.exclusive():
            if not self._expects(asked):
                return
            await self._copies.copy(asked, answer.records)
            end_offset = replica.log.end_offset
            replica.move_high_watermark(max(replica.high_watermark, min(answer.high_watermark, end_offset)))
        start_offset = min(leader_start_offset, replica.high_watermark)
        if start_offset > replica.log.start_offset:
            await self._maintenance.move_start(start_offset)

    async def _cut_to_leader(self, asked: Question, answer: Diverged | OutOfRange, leader_start_offset: int) -> None:
        replica = self._replica
        async with self._maintenance.paused(), replica.writer.exclusive():
            if self._expects(asked):
                try:
                    await self._copies.cut_to_leader(answer, leader_start_offset)
                finally:
                    replica.move_high_watermark(min(replica.high_watermark, replica.log.end_offset))

    async def truncate(self, end_offset: int) -> None:
        """Drop everything from the batch with `end_offset` on."""
        self._replica.check_open()
        await self._maintenance.to_the_end(self._truncate(end_offset))

    async def _truncate(self, end_offset: int) -> None:
        async with self._maintenance.paused(), self._replica.writer.exclusive():
            await self._copies.cut(end_offset)
        self._replica.on_written()

    def _followed(self) -> Term | None:
        """The term of the leader to copy from."""
        replica = self._replica
        term = replica.term
        is_usable = not replica.is_closed and replica.log.failed is None and not replica.leader.leads
        return term if is_usable and term is not None and term.leader >= 0 else None

    def _expects(self, asked: Question) -> bool:
        term = self._followed()
        return term is not None and still_true(asked, term, self._replica.log.end_offset)
