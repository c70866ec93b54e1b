"""A member of a consumer group, for asyncio: it delivers records of its partitions and commits their offsets.

`ConsumerProgress` decides which records are delivered, handled and committed. This module has the tasks that
call the broker. One task polls: it keeps the member alive, follows the assignment and fills a bounded buffer, even
while the application handles a record for long. A second task commits. A third one checks whether the topics exist.

A fenced member (it was silent for too long, or another one took its place) drops its records and joins again. Other
members get the records that it has not committed. A member also leaves the group when the application handles one
record for far too long. It joins again when the application asks for the next one.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self, Unpack

from tidemill.client.grpc_login import FetchToken
from tidemill.client.grpc_security import parse_grpc_security
from tidemill.client.hint_rules import HintRules
from tidemill.client.kafka.errors import ClientError
from tidemill.client.progress import ConsumerProgress
from tidemill.client.topics.brokers import Brokers, backoff_ms
from tidemill.client.topics.options import RESETS, ConsumerKeywords, consumer_options
from tidemill.model.errors import (
    FencedMemberEpoch,
    OffsetOutOfRange,
    StaleMemberEpoch,
    TidemillError,
    UnknownMemberId,
    UnknownServerError,
    UnreadableBatch,
    by_name,
)
from tidemill.model.topics import TopicPartition
from tidemill.wire.grpc import broker_pb2 as wire

CALL_TIMEOUT_MS = 10_000
LEAVE_TIMEOUT_MS = 2_000
COMMIT_TRIES = 3
MISSING_FIRST_S, MISSING_S = 2.0, 30.0
"""The intervals of the check whether the topics exist: short at first, then longer."""
FENCED = (UnknownMemberId, FencedMemberEpoch)

log = logging.getLogger("tidemill.consumer")


class ConsumerClosed(ClientError):
    """The consumer is closed; open another one."""


class TopicRecord(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class AsyncConsumer:
    """One member of a group; `Consumer` for asyncio: `async for record in consumer:` delivers records without end."""

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:6174",
        group: str = "",
        topics: str | Sequence[str] = (),
        client: Mapping[str, str] | None = None,
        token: FetchToken | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        self.group = group
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        self.options = consumer_options(group, self.topics, options)
        self.member_id = str(uuid.uuid4())
        self._brokers = Brokers(
            addresses,
            connect_timeout_ms=self.options.connect_timeout_ms,
            security=parse_grpc_security(client, token),
            follow_hints=self.options.follow_hints,
        )
        self._rules = HintRules(follows=self.options.follow_hints)
        self._progress = ConsumerProgress(
            commit_records=self.options.commit_records, commit_interval_ms=self.options.commit_interval_ms
        )
        self._lock = threading.Lock()  # the threads of the synchronous client also call `take`
        self._loop = asyncio.get_running_loop()
        self._epoch = 0
        self._failure: TidemillError | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._handled = asyncio.Event()
        self._committing = asyncio.Lock()
        self._closed = False
        self._dropped = False
        self._troubles = 0
        self._tasks = [asyncio.create_task(self._poll_forever()), asyncio.create_task(self._warn_missing_topics())]
        if self.options.auto_commit:
            self._tasks.append(asyncio.create_task(self._commit_forever()))
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Let `next` raise an unexpected error of a task; otherwise it would wait forever."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failure = UnknownServerError(f"the consumer ended with an unexpected error: {error!r}")
            self._failure = self._failure or failure
            self._arrived.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(handled=kind is None)

    def __aiter__(self) -> AsyncIterator[TopicRecord]:
        return self

    async def __anext__(self) -> TopicRecord:
        record = await self.next()
        if record is None:
            raise StopAsyncIteration
        return record

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned to this member now."""
        with self._lock:
            return sorted(self._progress.assigned)

    @property
    def broker(self) -> str:
        """The address of the broker that this member polls."""
        return self._brokers.address

    @property
    def moves(self) -> int:
        """How often this member has moved to another broker because of a hint."""
        return self._rules.moves

    async def next(self, timeout_ms: int | None = None) -> TopicRecord | None:
        """Return the next record; the previous one counts as handled. None on a timeout, or after `close`."""
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1_000
        while not self._closed:
            self._arrived.clear()
            record = self.take()
            if record is not None:
                return record
            if self._failure is not None:
                raise self._failure
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return None
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()
        return None

    def take(self) -> TopicRecord | None:
        """Return the next record if one is buffered; any thread may call this."""
        with self._lock:
            record: TopicRecord | None = self._progress.take(_now_ms())
            buffered = self._progress.buffered
            stirs = self._progress.overdue or self._progress.leaving
            self._dropped = self._dropped and record is None
        if stirs or not buffered or buffered == self.options.buffer_records // 2:
            self._loop.call_soon_threadsafe(self._stir)
        return record

    def _stir(self) -> None:
        self._room.set()
        self._handled.set()

    async def commit(self) -> None:
        """Commit up to the current record, which counts as handled. After an error, nothing was committed."""
        if self._closed:
            raise ConsumerClosed
        if self._dropped:
            self._dropped = False
            raise UnknownMemberId("the membership ended before the commit; the records are delivered again")
        with self._lock:
            self._progress.finish(_now_ms())
        try:
            await self._commit()
        except FENCED:
            self._dropped = False  # this error reports it
            raise

    async def close(self, *, handled: bool = True) -> None:
        """Commit the handled records, leave the group and close the connections.

        The current record counts as handled, unless the caller passes `handled=False`.
        """
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._arrived.set()
        try:
            if self.options.auto_commit and self._failure is None:
                if handled:
                    with self._lock:
                        self._progress.finish(_now_ms())
                await self._commit()
        except TidemillError:
            pass  # uncommitted records are delivered again
        finally:
            await self._leave()
            await self._brokers.close()

    async def _leave(self) -> None:
        if not self._epoch:
            return
        request = wire.UnsubscribeRequest(group=self.group, member_id=self.member_id)
        try:
            await self._brokers.call("Unsubscribe", request, timeout_ms=LEAVE_TIMEOUT_MS)
        except TidemillError:
            return  # the broker ends the session by its timeout

    # -- polling -------------------------------------------------------------------------------------------------------

    async def _poll_forever(self) -> None:
        attempt = 0
        began_s = time.monotonic()
        while True:
            try:
                await self._give_up_if_stuck()
                await self._poll() if self._epoch else await self._join()
                attempt = 0
            except (*FENCED, StaleMemberEpoch):
                self._lose()
            except TidemillError as error:
                if not error.retriable or self._brokers.contact.is_hopeless(began_s):
                    self._failure = error
                    self._arrived.set()
                    return
                await asyncio.sleep(backoff_ms(attempt) / 1_000)
                attempt += 1

    async def _warn_missing_topics(self) -> None:
        """Log topics that do not exist. A topic may be created later, so the consumer waits for it."""
        warned: set[str] = set()
        pause_s = MISSING_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = MISSING_S
            with suppress(TidemillError):
                reply = await self._brokers.call("GetMetadata", wire.GetMetadataRequest(topics=self.topics))
                missing = set(self.topics) - {topic.name for topic in reply.topics}
                for topic in sorted(missing - warned):
                    log.warning("topic_missing: waiting for %s; create it with: tidemill topic create %s", topic, topic)
                warned = missing

    async def _give_up_if_stuck(self) -> None:
        """Leave the group while the application is stuck in a record, so that others get the partition."""
        with self._lock:
            stuck = self._progress.held_ms(_now_ms()) > self.options.max_handling_ms
        if stuck:
            self._room.clear()
            await self._leave()
            self._lose()
            await self._room.wait()

    async def _join(self) -> None:
        await self._brokers.settle(self.topics[0])
        request = wire.SubscribeRequest(**self._about())
        reply = await self._brokers.call_at(self._brokers.address, "Subscribe", request, timeout_ms=CALL_TIMEOUT_MS)
        self._epoch = reply.member_epoch
        self._follow(reply.assigned)

    async def _poll(self) -> None:
        """Poll once: release revoked partitions, then ask for more records."""
        if self._progress.leaving:
            await self._try_to_commit()
        self._room.clear()
        with self._lock:
            self._progress.release()
            has_room = self._progress.buffered <= self.options.buffer_records // 2
            positions = self._progress.positions()
            keeps = self._progress.leaving
        request = self._poll_request(positions, max_records=self.options.poll_records if has_room else 0)
        epoch = self._epoch
        reply = await self._brokers.call_at(
            self._brokers.address, "Poll", request, timeout_ms=self.options.poll_interval_ms + CALL_TIMEOUT_MS
        )
        if epoch != self._epoch:
            return
        self._epoch = reply.member_epoch
        if reply.rebalance:
            self._follow(reply.assigned)
        if reply.HasField("move"):
            await self._move(reply.move)
        error = self._receive(reply.partitions)
        if error is not None:
            await self._rest_after(error, got=any(one.records for one in reply.partitions))
            return
        self._troubles = 0
        if keeps or not ((positions and has_room) or reply.rebalance):
            await self._pause()

    async def _move(self, hint: wire.MoveHint) -> None:
        """Poll at another broker from now on. The member stays the same, because each poll carries its whole state."""
        target = self._rules.target(hint.addresses, hint.window_ms, _now_ms(), self._brokers.address)
        if target is None:
            return
        if not await self._brokers.is_reachable(target):
            self._rules.failed(target, _now_ms())
            return
        self._rules.moved(_now_ms())
        log.info("moving to the broker at %s: %s", target, hint.reason)
        self._brokers.prefer([target])

    async def _rest_after(self, error: TidemillError, *, got: bool) -> None:
        """Wait before the next read of a partition that cannot be read now; the others do not wait for it."""
        if not error.retriable:
            raise error
        pause_ms = min(backoff_ms(self._troubles), self.options.poll_interval_ms)
        self._troubles += 1
        if not got:
            await asyncio.sleep(pause_ms / 1_000)

    def _poll_request(self, positions: Mapping[TopicPartition, int], *, max_records: int) -> wire.PollRequest:
        return wire.PollRequest(
            **self._about(),
            member_epoch=self._epoch,
            positions=[wire.Position(**place._asdict(), offset=offset) for place, offset in positions.items()],
            max_records=max_records,
            max_wait_ms=self.options.poll_interval_ms,
        )

    async def _pause(self) -> None:
        """Wait until the buffer has space, but not longer than the heartbeat interval."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.poll_interval_ms / 1_000):
                await self._room.wait()

    def _receive(self, partitions: Sequence[wire.PartitionRecords]) -> TidemillError | None:
        """Take the received records; return a temporary error of a partition, if there is one."""
        failure: TidemillError | None = None
        with self._lock:
            for one in partitions:
                place = TopicPartition(one.topic, one.partition)
                error = by_name(one.error)(one.reason) if one.error else None
                if isinstance(error, OffsetOutOfRange):
                    self._progress.arrived(place, (), RESETS[self.options.reset][1])
                elif isinstance(error, UnreadableBatch) and error.next_offset is not None:
                    failure = self._skip_unreadable(place, error, error.next_offset) or failure
                elif error is not None:
                    failure = error
                else:
                    records = [(record.offset, _record(one, record)) for record in one.records]
                    self._progress.arrived(place, records, one.next_offset)
        if partitions:
            self._arrived.set()
        return failure

    def _skip_unreadable(
        self, place: TopicPartition, error: UnreadableBatch, next_offset: int
    ) -> UnreadableBatch | None:
        """Skip a batch that cannot be read, if the options say so; otherwise return the error."""
        if not self.options.skip_unreadable:
            return UnreadableBatch(f"{error}; pass skip_unreadable=True to the consumer to skip such batches")
        log.warning("batch_skipped: %s", error)
        self._progress.arrived(place, (), next_offset)
        return None

    def _follow(self, assigned: Sequence[wire.Position]) -> None:
        with self._lock:
            self._progress.follow({TopicPartition(one.topic, one.partition): one.offset for one in assigned})

    def _lose(self) -> None:
        """Drop everything, because other members may own the partitions by now."""
        self._epoch = 0
        with self._lock:
            self._dropped = self._progress.lose()

    def _about(self) -> dict[str, Any]:
        options = self.options
        return {
            "group": self.group,
            "topics": self.topics,
            "member_id": self.member_id,
            "client_id": options.client_id,
            "rack": options.rack,
            "rebalance_timeout_ms": options.rebalance_timeout_ms,
            "reset": RESETS[options.reset][0],
        }

    # -- committing ----------------------------------------------------------------------------------------------------

    async def _commit_forever(self) -> None:
        while True:
            self._handled.clear()
            with self._lock:
                now_ms = _now_ms()
                due_ms = self._progress.due_ms(now_ms)
            if due_ms is not None and due_ms <= now_ms:
                await self._try_to_commit()
            wait_ms = self.options.commit_interval_ms if due_ms is None else max(1, due_ms - now_ms)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1_000):
                    await self._handled.wait()

    async def _try_to_commit(self) -> None:
        """Commit in the background: rejected records are delivered again, and a failed call is retried later."""
        if not self.options.auto_commit:
            return
        with suppress(TidemillError):
            await self._commit()

    async def _commit(self) -> None:
        async with self._committing:
            with self._lock:
                offsets = self._progress.to_commit()
            if not offsets:
                return
            if not self._epoch:
                raise UnknownMemberId("the membership has ended; the records are delivered again")
            request = wire.CommitRequest(
                group=self.group,
                member_id=self.member_id,
                member_epoch=self._epoch,
                offsets=[wire.Position(**place._asdict(), offset=offset) for place, offset in offsets.items()],
            )
            try:
                await self._send_commit(request)
            except FENCED:
                if self._epoch == request.member_epoch:
                    self._lose()  # at once: none of the buffered records may be delivered
                self._dropped = True
                raise
            except BaseException:  # also on cancellation: repeating a commit that arrived does no harm
                with self._lock:
                    self._progress.give_back(offsets, _now_ms())
                raise

    async def _send_commit(self, request: wire.CommitRequest) -> None:
        """Commit, and retry under a new epoch, because a poll may have raised it.

        Nothing is released during a commit, so the partitions still belong to this member. When `close` has cancelled a
        poll, its answer is unknown: then a last heartbeat fetches the epoch.
        """
        for _ in range(COMMIT_TRIES):
            try:
                await self._brokers.call("Commit", request, timeout_ms=CALL_TIMEOUT_MS)
            except StaleMemberEpoch:
                if self._closed:
                    await self._learn_epoch()
                if self._epoch in (0, request.member_epoch):
                    raise
                request.member_epoch = self._epoch
            else:
                return
        raise StaleMemberEpoch("the group keeps rebalancing; the records are delivered again")

    async def _learn_epoch(self) -> None:
        """Send a heartbeat without asking for records: this member keeps everything that it owns."""
        request = self._poll_request(self._progress.positions(), max_records=0)
        reply = await self._brokers.call("Poll", request, timeout_ms=CALL_TIMEOUT_MS)
        self._epoch = reply.member_epoch


def _record(where: wire.PartitionRecords, record: wire.Record) -> TopicRecord:
    return TopicRecord(
        where.topic,
        where.partition,
        record.offset,
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        tuple((one.key, one.value if one.HasField("value") else None) for one in record.headers),
        record.timestamp_ms,
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
