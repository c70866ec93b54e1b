"""Group commit: one insert carries the batches of all partitions that wait.

Batches that arrive during an insert are collected. The next insert takes all of them, up to a limit. Each insert has
its own token. When its response is lost, it is unknown whether the rows are stored. So the insert is repeated with the
same token until there is a response; ClickHouse drops a repeat of stored rows. Until then the partitions of that insert
wait. Their producers get RequestTimedOut, and no other record gets the offsets of records that may exist.

When the server responds with an error, the insert has ended, and a query of the table shows how. A certain error, or no
connection at all, fails the whole insert: nothing was stored. If the error is about rows (or the rows cannot be built),
the insert is split until only the partition with the bad rows fails.

On shared servers another broker may have taken over some of the partitions (`claims`). Then the server rejects the
insert. Producers of these partitions are redirected, and the other batches are inserted with the same token. This is
safe even if the response to an earlier attempt was lost: a token counts once, and a late attempt is rejected too.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa
import structlog

from tidemill.model.errors import KafkaError, KafkaStorageError, NotLeaderOrFollower
from tidemill.streams.clickhouse.claims import Claims
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.errors import EngineClosed, EngineError, EngineUncertain
from tidemill.streams.clickhouse.kernels import CHOICE
from tidemill.streams.clickhouse.rows import BatchRows, rows_of
from tidemill.streams.clickhouse.schema import ENTRY, TAKEN_OVER

BLOCK_BYTES_MAX = 32 * 1024 * 1024
"""The largest size of the batches in one insert. One insert becomes one part of a table."""
RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)
ABOUT_ROWS = frozenset({6, 27, 53, 70, 117, 321, 395})
"""Error codes that reject some rows of an insert and do not concern the others.

They are values that cannot be read or do not fit their column, and the check of the view on servers.
"""
UNDECIDED = frozenset({159, 209, 210, 319})
"""Error codes after which the server may still be working: timeouts, and an unknown status."""

log = structlog.get_logger("tidemill.streams")


class BrokerRun(NamedTuple):
    """One run of a broker process, which identifies its inserts."""

    node: str
    run_id: str

    @property
    def family(self) -> str:
        """The prefix of this broker's query ids, across all runs."""
        return f"tidemill-{self.node}-"

    @property
    def prefix(self) -> str:
        """The prefix of this run's query ids."""
        return f"{self.family}{self.run_id}-"


class _WaitingBatches:
    """Batches of one partition that wait for an insert."""

    __slots__ = ("claim", "done", "entries", "place", "size")

    def __init__(self, entries: Sequence[BatchRows], done: asyncio.Future[None]) -> None:
        self.entries = entries
        self.place = entries[0].place
        self.claim = entries[0].claim
        self.size = sum(len(entry.batch) for entry in entries)
        self.done = done


class Committer:
    """Inserts the batches that one server owns."""

    def __init__(self, engine: Engine, server: int, claims: Claims, clock: Callable[[], int], run: BrokerRun) -> None:
        self.blocks = 0
        self.rows = 0
        self._engine = engine
        self._server = server
        self._claims = claims
        self._clock = clock
        self._tokens = (f"{run.prefix}{server}-{number}" for number in count())
        self._table = "messages" if engine.layout.embedded else ENTRY
        self._waiting: list[_WaitingBatches] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def store(self, entries: Sequence[BatchRows]) -> None:
        """Return when all of these batches of a partition are stored. After an error none of them is."""
        if self._closing.is_set():
            raise EngineClosed
        loop = asyncio.get_running_loop()
        waiting = _WaitingBatches(entries, loop.create_future())
        self._waiting.append(waiting)
        if self._task is None:
            self._task = loop.create_task(self._run())
        await waiting.done

    async def close(self) -> None:
        """Insert the waiting batches. Give up inserts on a server that is unreachable."""
        self._closing.set()
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._settle(self._take())
        finally:
            self._task = None

    async def _settle(self, group: list[_WaitingBatches]) -> None:
        """Store as much of the group as the server accepts. Every waiting caller gets a result."""
        try:
            await self._commit(group)
        except EngineError as raised:
            if raised.reason in ABOUT_ROWS and len(group) > 1:
                await self._split(group)
            else:
                _answer(group, raised)
        except KafkaError as raised:
            _answer(group, raised)
        except Exception as raised:  # noqa: BLE001 - every waiting caller must get the error, whatever it is
            if len(group) > 1:
                await self._split(group)
            else:
                _answer(group, KafkaStorageError(repr(raised)))

    async def _split(self, group: list[_WaitingBatches]) -> None:
        """Retry both halves separately, so that bad rows of one partition do not block other partitions."""
        left = [each for each in group if not _has_failed(each)]
        middle = len(left) // 2
        for half in (left[:middle], left[middle:]):
            if half:
                await self._settle(half)

    def _take(self) -> list[_WaitingBatches]:
        size, taken = 0, 0
        for waiting in self._waiting:
            size += waiting.size
            if taken and size > BLOCK_BYTES_MAX:
                break
            taken += 1
        group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return group

    async def _commit(self, group: list[_WaitingBatches]) -> None:
        token, appended_ms = next(self._tokens), self._clock()
        while group:
            entries = [entry for each in group for entry in each.entries]
            rows = sum(entry.header.count for entry in entries)
            block = await asyncio.to_thread(_block_of, entries, rows, appended_ms)
            if await self._insert(block, entries[0], token):
                self.blocks += 1
                self.rows += block.num_rows
                _answer(group, None)
                return
            group = await self._still_ours(group)

    async def _insert(self, block: pa.RecordBatch, first: BatchRows, token: str) -> bool:
        """Whether the block is stored. If not, another broker has taken over at least one of its partitions."""
        lost = False
        for attempt in count():
            try:
                query_id = f"{token}-{attempt}"
                await self._engine.insert(
                    self._table, self._owned(block), token=token, server=self._server, query_id=query_id
                )
            except EngineClosed:
                raise
            except EngineError as error:
                if TAKEN_OVER in str(error):
                    return False
                lost = lost or (isinstance(error, EngineUncertain) and not _is_answer(error))
                if not lost and not (isinstance(error, EngineUncertain) and await self._is_stored(first)):
                    raise
                if not lost:
                    return True
                log.warning("insert_uncertain_retrying", server=self._server, error=str(error))
            else:
                return True
            await self._rest(RETRY_S[min(attempt, len(RETRY_S) - 1)])
        raise AssertionError("attempts do not end")

    def _owned(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """Add the ownership of the range, which may have moved since the last attempt."""
        if self._table != ENTRY:
            return block
        number = self._engine.ownership(self._server)
        return block.append_column("ownership", pa.array([number] * block.num_rows, pa.uint32()))

    async def _still_ours(self, group: list[_WaitingBatches]) -> list[_WaitingBatches]:
        """Fail the batches whose partition another broker took over. Return the others."""
        newest = await self._claims.newest({each.place for each in group})
        gone = [each for each in group if newest.get(each.place) != each.claim]
        if not gone:
            raise KafkaStorageError(
                "ClickHouse rejected an insert for a taken-over partition, but no partition has a newer claim; retry"
            )
        for each in gone:
            topic, partition, _ = each.place
            _answer(
                [each],
                NotLeaderOrFollower(
                    f"{topic}-{partition} was taken over by another broker; refresh the metadata and retry"
                ),
            )
        return [each for each in group if each not in gone]

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return
        raise EngineClosed("the broker stopped before the outcome of an insert was known; retry")

    async def _is_stored(self, first: BatchRows) -> bool:
        found = await self._engine.query(
            f"SELECT count() AS found FROM messages WHERE {first.place.rows} AND offset >= {first.header.base_offset} "
            f"AND batch_offset = {first.header.base_offset}",
            server=self._server,
        )
        return bool(found["found"][0].as_py())


def _is_answer(error: EngineError) -> bool:
    return error.reason is not None and error.reason not in UNDECIDED


def _block_of(entries: list[BatchRows], rows: int, appended_ms: int) -> pa.RecordBatch:
    """Build the block. The kernels are chosen here, because the first choice of the fastest loads them."""
    return rows_of(entries, appended_ms, CHOICE.for_rows(rows))


def _has_failed(waiting: _WaitingBatches) -> bool:
    """Whether the batches already failed. If a producer stopped waiting there is no error, and its rows are stored."""
    return waiting.done.done() and not waiting.done.cancelled()


def _answer(group: list[_WaitingBatches], error: KafkaError | None) -> None:
    for waiting in group:
        if waiting.done.done():
            continue
        if error is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(error)
