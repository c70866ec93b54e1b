"""Group commit: one insert for all that producers of all partitions wait for.

While an insert is under way, what arrives gathers; the next insert takes it all, up to a limit. Each insert carries a
token of its own. When its answer is lost, nobody knows whether it is stored, so it is repeated with the same token
until there is an answer: ClickHouse drops the repeat of what it has. Until then the partitions of that insert wait;
their producers hear RequestTimedOut, and nobody gets the offsets of records that may be there.

When the server answers with an error, it has ended the insert, and a look into the table says how. An answer that
is certain, or no connection at all, fails the whole insert: nothing was stored. When the answer is about rows (or the
rows cannot be made), the insert is split until only the partition with the bad rows fails.

On servers another broker may have taken over some of the partitions (`claims`): then the insert is refused, those who
wait for these partitions are sent to it, and the rest goes in with the same token. That is safe even if the answer to
an earlier attempt was lost: a token counts once, and an attempt that still comes is refused like this one.
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
"""Batches of one insert; a part of a table that is written at once."""
RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)
ABOUT_ROWS = frozenset({6, 27, 53, 70, 117, 321, 395})
"""Answers that reject some rows of an insert and say nothing about the others: values that cannot be read or do not
fit their column, and the check of the view on servers."""
UNDECIDED = frozenset({159, 209, 210, 319})
"""Answers after which the server may still be at work: timeouts, and a status that it does not know itself."""

log = structlog.get_logger("tidemill.streams")


class BrokerRun(NamedTuple):
    """One life of a broker: its inserts are known by it."""

    node: str
    run_id: str

    @property
    def family(self) -> str:
        """How the names of this broker's inserts begin in all its lives."""
        return f"tidemill-{self.node}-"

    @property
    def prefix(self) -> str:
        """How they begin in this life."""
        return f"{self.family}{self.run_id}-"


class _WaitingBatches:
    """Batches of one partition."""

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
        """Return when all of these batches of a partition are stored; after an error none of them is."""
        if self._closing.is_set():
            raise EngineClosed
        loop = asyncio.get_running_loop()
        waiting = _WaitingBatches(entries, loop.create_future())
        self._waiting.append(waiting)
        if self._task is None:
            self._task = loop.create_task(self._run())
        await waiting.done

    async def close(self) -> None:
        """Insert what waits; give up what a server that is away was asked for."""
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
        """Store the group, or as much of it as the server accepts; everyone who waits gets an answer."""
        try:
            await self._commit(group)
        except EngineError as raised:
            if raised.reason in ABOUT_ROWS and len(group) > 1:
                await self._split(group)
            else:
                _answer(group, raised)
        except KafkaError as raised:
            _answer(group, raised)
        except Exception as raised:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            if len(group) > 1:
                await self._split(group)
            else:
                _answer(group, KafkaStorageError(repr(raised)))

    async def _split(self, group: list[_WaitingBatches]) -> None:
        """Halves that fail on their own: one partition's bad rows hold back no other partition."""
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
        """Whether the block is stored; if not, another broker has taken over something of it."""
        lost = False
        for attempt in count():
            try:
                query_id = f"{token}-{attempt}"
                await self._engine.insert(self._table, block, token=token, server=self._server, query_id=query_id)
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
                log.warning("an insert is in doubt and repeated", server=self._server, error=str(error))
            else:
                return True
            await self._rest(RETRY_S[min(attempt, len(RETRY_S) - 1)])
        raise AssertionError("attempts do not end")

    async def _still_ours(self, group: list[_WaitingBatches]) -> list[_WaitingBatches]:
        """Send those away whose partition another broker writes now; who is left."""
        newest = await self._claims.newest({each.place for each in group})
        gone = [each for each in group if newest.get(each.place) != each.claim]
        if not gone:
            raise KafkaStorageError("an insert was refused for a partition that nobody took over")
        for each in gone:
            topic, partition, _ = each.place
            _answer([each], NotLeaderOrFollower(f"{topic}-{partition} was taken over by another broker"))
        return [each for each in group if each not in gone]

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._closing.wait(), seconds)
        except TimeoutError:
            return
        raise EngineClosed("the broker stops while an insert is in doubt")

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
    """The kernels are chosen where they are used: the first choice of the fastest loads them."""
    return rows_of(entries, appended_ms, CHOICE.for_rows(rows))


def _has_failed(waiting: _WaitingBatches) -> bool:
    """Whether it has its error already; a producer that stopped waiting has none, and its rows are still wanted."""
    return waiting.done.done() and not waiting.done.cancelled()


def _answer(group: list[_WaitingBatches], error: KafkaError | None) -> None:
    for waiting in group:
        if waiting.done.done():
            continue
        if error is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(error)
