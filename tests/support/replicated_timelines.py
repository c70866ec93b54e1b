"""Brokers with replicated timelines in one process, over a journal in memory that can be cut off and handed over."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from tidemill.model.errors import NotLeaderOrFollower
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.timelines.core.errors import PartitionMoved
from tidemill.timelines.core.journal_entries import JournalBatch, JournalPosition
from tidemill.timelines.replicated.core.placement import first_seq
from tidemill.timelines.replicated.interface import AppendEntries, TimelineIndex
from tidemill.timelines.replicated.store import JOURNAL_BYTES, ReplicatedTimelineStore
from tidemill.timelines.sqlite.index import open_index, remove_index

LOG_ID = "log"


class MemoryLog:
    """One partition of the journal, as all brokers together have it: what is committed, and who leads."""

    def __init__(self) -> None:
        self.batches: list[JournalBatch] = []
        self.start_offset = 0
        self.leader = -1
        self.epoch = -1

    @property
    def end(self) -> JournalPosition:
        """The position behind the last batch."""
        return self.batches[-1].until if self.batches else JournalPosition(self.start_offset, -1)

    def lead(self, node_id: int) -> None:
        """Make a broker the leader, in a new epoch."""
        self.leader, self.epoch = node_id, self.epoch + 1

    def trim(self, start_offset: int) -> None:
        """Delete what is below an offset."""
        self.start_offset = max(self.start_offset, start_offset)
        self.batches = [one for one in self.batches if one.until.next_offset > start_offset]


class BrokerJournal:
    """One partition as one broker sees it. Without a link the broker still believes what it saw last."""

    def __init__(self, log: MemoryLog, node_id: int, world: "JournalWorld") -> None:
        self._log = log
        self._node_id = node_id
        self._world = world
        self._seen = -1, -1

    @property
    def log_id(self) -> str | None:
        """The identity of the log."""
        return LOG_ID

    @property
    def leader_epoch(self) -> int | None:
        """The epoch in which this broker leads, or believes that it does."""
        if self._node_id not in self._world.cut:
            self._seen = self._log.leader, self._log.epoch
        leader, epoch = self._seen
        return epoch if leader == self._node_id else None

    @property
    def start_offset(self) -> int:
        """The first offset that is kept."""
        return self._log.start_offset

    @property
    def committed_offset(self) -> int:
        """The end: everything in memory is committed."""
        return self._log.end.next_offset

    @property
    def size_bytes(self) -> int:
        """The size of what is kept."""
        return sum(len(value) for batch in self._log.batches for value in batch.values)

    def continues(self, position: JournalPosition) -> bool:
        """Whether the log has what follows the position."""
        if position.next_offset == self._log.start_offset == 0:
            return True
        ends = {one.until for one in self._log.batches}
        return position in ends or position.next_offset == self._log.start_offset > 0

    async def settled(self) -> None:
        """Everything in memory is committed."""
        self._check()

    async def read(self, offset: int) -> Sequence[JournalBatch]:
        """The next committed values."""
        if self._node_id in self._world.cut:
            return ()
        await asyncio.sleep(0)
        return [one for one in self._log.batches if one.until.next_offset > offset][:3]

    async def append(self, values: Sequence[bytes], at: JournalPosition, epoch: int) -> JournalPosition:
        """Append as the leader of `epoch`; the answer may be lost, and the values with it or not."""
        await self._world.pause()
        self._check()
        lost = self._world.loses_answer()
        if self._log.leader != self._node_id or self._log.epoch != epoch or self._log.end.next_offset != at.next_offset:
            raise NotLeaderOrFollower
        if lost != "before":
            until = JournalPosition(at.next_offset + len(values), epoch)
            self._log.batches.append(JournalBatch(list(values), until))
            self._world.appended += 1
        if lost:
            raise StoreUnavailable("the replicas do not answer")
        return until

    async def trim(self, start_offset: int) -> None:
        """Delete everything below an offset."""
        self._check()
        self._log.trim(start_offset)

    def _check(self) -> None:
        if self._node_id in self._world.cut:
            raise StoreUnavailable("this broker is cut off")


class BrokerTopic:
    """The journal as one broker sees it."""

    def __init__(self, node_id: int, world: "JournalWorld") -> None:
        self._node_id = node_id
        self._world = world
        self._partitions = [BrokerJournal(log, node_id, world) for log in world.logs]

    @property
    def partitions(self) -> int:
        """Their number."""
        return len(self._partitions)

    @property
    def exists(self) -> bool:
        """Always true."""
        return True

    async def ensure(self) -> None:
        """It exists."""

    def leader_of(self, partition: int) -> int:
        """The leader."""
        return self._world.logs[partition].leader

    def partition(self, number: int) -> BrokerJournal:
        """One partition."""
        return self._partitions[number]


class BrokerPeers:
    """Calls to the other brokers of the process."""

    def __init__(self, node_id: int, world: "JournalWorld") -> None:
        self._node_id = node_id
        self._world = world

    async def call(self, node_id: int, request: bytes) -> bytes:
        """Send a request to a broker."""
        await self._world.pause()
        store = self._world.stores.get(node_id)
        if store is None or {node_id, self._node_id} & self._world.cut:
            raise PartitionMoved(f"broker {node_id} is away")
        answer = await store.answers.answer(request)
        if {node_id, self._node_id} & self._world.cut:
            raise StoreUnavailable(f"broker {node_id} does not answer")
        return answer

    async def close(self) -> None:
        """Nothing is open."""


class JournalWorld:
    """Brokers that share a journal. `losses` is the part of appends whose answer is lost."""

    def __init__(
        self, home: Path, partitions: int, seed: int = 0, losses: float = 0.0, journal_bytes: int = JOURNAL_BYTES
    ) -> None:
        self.logs = [MemoryLog() for _ in range(partitions)]
        self.stores: dict[int, ReplicatedTimelineStore] = {}
        self.cut: set[int] = set()
        self.losses = losses
        self.appended = 0
        self.now_ms = 0
        self._journal_bytes = journal_bytes
        self._home = home
        self._random = random.Random(seed)

    async def start(self, node_id: int, wait_s: float = 5.0) -> ReplicatedTimelineStore:
        """Start a broker; it leads what has no leader."""
        for log in self.logs:
            if log.leader < 0:
                log.lead(node_id)

        async def open_one(log_id: str, number: int, append: AppendEntries) -> TimelineIndex:
            return await open_index(self._file(node_id, log_id, number), first_seq(number), append)

        async def remove_one(log_id: str, number: int) -> None:
            remove_index(self._file(node_id, log_id, number))

        store = ReplicatedTimelineStore(
            node_id,
            BrokerTopic(node_id, self),
            BrokerPeers(node_id, self),
            open_index=open_one,
            remove_index=remove_one,
            clock_ms=lambda: self.now_ms,
            journal_bytes=self._journal_bytes,
            wait_s=wait_s,
        )
        self.stores[node_id] = store
        await store.start()
        return store

    async def stop(self, node_id: int) -> None:
        """Stop a broker; its calls in progress have an unknown outcome."""
        store = self.stores.pop(node_id)
        await store.close()

    async def restart(self, node_id: int, index: str = "kept") -> None:
        """Stop a broker and start it again. Its indexes are kept, lost, or those of an earlier restart.

        A power failure takes the last commits of an index, so an earlier one is what a broker may find.
        """
        await self.stop(node_id)
        folder, earlier = self._home / f"broker{node_id}", self._home / f"earlier{node_id}"
        if index == "earlier" and earlier.exists():
            shutil.rmtree(folder)
            shutil.copytree(earlier, folder)
        elif index == "lost":
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.exists():
            shutil.rmtree(earlier, ignore_errors=True)
            shutil.copytree(folder, earlier)
        await self.start(node_id, wait_s=0.1)

    async def pause(self) -> None:
        """Let others run."""
        for _ in range(self._random.randrange(3)):
            await asyncio.sleep(0)

    def loses_answer(self) -> str:
        """Whether the answer of an append is lost: before it was written, or after."""
        if self._random.random() >= self.losses:
            return ""
        return self._random.choice(("before", "after"))

    def _file(self, node_id: int, log_id: str, number: int) -> Path:
        return self._home / f"broker{node_id}" / f"{log_id}-{number}.db"
