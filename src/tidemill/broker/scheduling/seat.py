"""A seat: the records for later in one partition of their journal, as its leader keeps them.

The journal says what waits; a timeline of this broker is the index of it, in the order of due times. A record is
journaled before it is in the index, and taken out of the journal before it is taken out of the index, so that
everything in the journal is delivered. What cannot be known to be in both makes the seat *doubtful*: then it is read
anew.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from uuid import UUID

from tidemill.broker.journals import Journal, KeyValue
from tidemill.broker.scheduling.log import Due, due_of
from tidemill.broker.scheduling.plan import Waiting
from tidemill.model.errors import NotEnoughReplicas
from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.consumer import Consumer, ConsumerTerms, Granted
from tidemill.timelines.core.lease import Complete, Outcome, Release
from tidemill.timelines.core.message import Selection
from tidemill.timelines.core.timeline import BODY_BYTES_LIMIT, TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher, Wanted

PREFIX = "__waiting."
LEASE_MS = 15_000
IN_FLIGHT_MAX = 1_000
AT_A_TIME = 1_000
"""Records that are read into the index together."""
DOUBTED = 2
"""As which attempt a record is sent: another seat may have sent it before, so its leader looks for it first."""
KEY_BYTES = 16
SETTINGS = TimelineSettings(lease_ms=LEASE_MS, body_bytes_max=BODY_BYTES_LIMIT)
_VALUE = Struct(">16sq")
_TOPIC = Struct(">16s")

Topics = Mapping[UUID, Mapping[int, Sequence[Due]]]
"""Due records by topic and partition."""


def key_of(topic_id: UUID, message_id: str) -> bytes:
    """What names a waiting record in the journal."""
    return blake2b(topic_id.bytes + message_id.encode(), digest_size=KEY_BYTES).digest()


def entry(topic_id: UUID, waiting: Waiting, message_id: str) -> KeyValue:
    """A waiting record as it is journaled."""
    return key_of(topic_id, message_id), _VALUE.pack(topic_id.bytes, waiting.due_ms) + waiting.body


class Seat:
    """What waits in one partition of the journal, while this broker leads it under one epoch."""

    def __init__(self, index: int, epoch: int, name: str, journal: Journal, timelines: Dispatcher) -> None:
        self.epoch = epoch
        self.name = name
        self.doubtful = False
        self._index = index
        self._journal = journal
        self._timelines = timelines
        self._turn = asyncio.Lock()
        self._consumer: Consumer | None = None

    async def load(self) -> None:
        """Read the journal into the index."""
        await self._timelines.create(self.name, SETTINGS)
        run: list[KeyValue] = []
        async for records in self._journal.replay(self._index):
            for one in records:
                if run and (len(run) >= AT_A_TIME or (run[-1][1] is None) != (one.value is None)):
                    await self._apply(run)
                    run = []
                run.append((one.key, one.value))
        if run:
            await self._apply(run)

    def attach(self, holder: str, push: Callable[[list[Granted]], None]) -> None:
        """Begin to deliver."""
        terms = ConsumerTerms(holder, lease_ms=LEASE_MS, max_in_flight=IN_FLIGHT_MAX, in_process=True)
        self._consumer = self._timelines.attach(self.name, terms, push=push, end=self._ended)

    async def leave(self) -> None:
        """Deliver nothing any more, and drop the index."""
        if self._consumer is not None:
            self._timelines.detach(self.name, self._consumer)
        with contextlib.suppress(TimelineError):
            await self._timelines.delete(self.name)

    async def take(self, entries: Sequence[KeyValue]) -> None:
        """Let records wait (those with a value that do not wait already), or take them back."""
        async with self._turn:
            waiting = {key: value for key, value in entries if key is not None and value is not None}
            cancelled = [key for key, value in entries if key is not None and value is None]
            known = await self._known(waiting)
            fresh: list[KeyValue] = [each for each in waiting.items() if each[0] not in known]
            try:
                if fresh:
                    await self._journal.append(self._index, fresh)
                    await self._schedule(fresh)
                if cancelled:
                    gone = await self._cancel(cancelled)
                    await self._forget(gone)
            except NotEnoughReplicas:  # nothing was written
                self.doubtful = self.doubtful or bool(cancelled)
                raise
            except BaseException:
                self.doubtful = True
                raise

    def due(self, granted: Iterable[Granted]) -> Topics:
        """Due messages as records, by where they belong."""
        found: defaultdict[UUID, defaultdict[int, list[Due]]] = defaultdict(lambda: defaultdict(list))
        for one in granted:
            body = one.message.body or b""
            topic_id = UUID(bytes=_TOPIC.unpack_from(body)[0])
            mark = f"{one.message.id}@{one.message.scheduled_ms}".encode()
            index, due = due_of(one, body[_TOPIC.size :], mark, attempts=DOUBTED)
            found[topic_id][index].append(due)
        return found

    async def settle(self, granted: Iterable[Granted], commands: Sequence[Complete | Release]) -> None:
        """What is done leaves the journal, then the index."""
        keys = {one.message.seq: bytes.fromhex(one.message.id) for one in granted}
        await self._forget([keys[one.seq] for one in commands if isinstance(one, Complete)])
        await self._timelines.settle(self.name, commands)

    async def _apply(self, run: Sequence[KeyValue]) -> None:
        """Records of the journal that all wait, or are all gone."""
        if run[0][1] is None:
            await self._cancel([key for key, _ in run])
        else:
            await self._schedule(run)

    async def _forget(self, keys: Sequence[bytes]) -> None:
        if keys:
            await self._journal.append(self._index, [(key, None) for key in keys])

    async def _known(self, keys: Iterable[bytes]) -> set[bytes]:
        ids = tuple(key.hex() for key in keys)
        found = await self._timelines.messages(self.name, Selection(ids=ids), len(ids), bodies=False) if ids else []
        return {bytes.fromhex(one.id) for one in found}

    async def _schedule(self, entries: Iterable[KeyValue]) -> None:
        wanted = [_wanted(key, value) for key, value in entries if key is not None and value is not None]
        for piece in _pieces(wanted):
            await self._timelines.schedule(self.name, piece)

    async def _cancel(self, keys: Sequence[bytes | None]) -> list[bytes]:
        """Take records back that are not on their way; which of them."""
        known = [key for key in keys if key is not None]
        outcomes = await self._timelines.cancel(self.name, [key.hex() for key in known])
        return [key for key, outcome in zip(known, outcomes, strict=True) if outcome is Outcome.DONE]

    def _ended(self, _: TimelineError) -> None:
        """The index was changed from outside, or is gone."""
        self.doubtful = True


def _wanted(key: bytes, value: bytes) -> Wanted:
    topic_id, due_ms = _VALUE.unpack_from(value)
    return Wanted(topic_id + value[_VALUE.size :], due_ms, key.hex())


def _pieces(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    for first in range(0, len(wanted), AT_A_TIME):
        yield wanted[first : first + AT_A_TIME]
