"""A producer bound to one topic, for asyncio: buffered, in order within a partition, stored once.

The accumulator decides which batches to send and when. One task here sends them. Batches of one leader are sent in one
call. A failed call is retried with growing pauses, at another broker if needed, until the record times out. The
producer creates a missing topic. It refreshes the metadata every half minute and after every failure.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Protocol, Self, Unpack

from tidemill.client.accumulator import Accumulator, Batch, BatchLimits, BufferedRecord, ProducerState, calls
from tidemill.client.grpc_login import FetchToken
from tidemill.client.grpc_security import parse_grpc_security
from tidemill.client.kafka.errors import ClientError
from tidemill.client.topics.brokers import CALL_TIMEOUT_MS, Brokers, backoff_ms
from tidemill.client.topics.options import ACKS, ProducerKeywords, producer_options
from tidemill.model.errors import TidemillError, TopicAlreadyExists, UnknownTopicOrPartition, by_name
from tidemill.records.hashing import PARTITIONERS
from tidemill.wire.grpc import broker_pb2 as wire

PRODUCE_TIMEOUT_MS = 30_000


class DeliveryFailed(ClientError):
    """A record was not delivered."""


class ProducerClosed(ClientError):
    """The producer is closed; open another one."""


class Delivery(NamedTuple):
    """The position of a stored record; offset -1 if the broker did not return it."""

    topic: str
    partition: int
    offset: int


class OutgoingRecord(NamedTuple):
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    partition: int | None = None

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        sizes = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + sizes


class Ticket(Protocol):
    """The future of a record, of asyncio or of threads."""

    def done(self) -> bool:
        """Whether the future is done or cancelled."""

    def set_result(self, result: Any, /) -> Any:
        """Mark the record as delivered."""

    def set_exception(self, exception: BaseException, /) -> Any:
        """Mark the record as failed."""


class AsyncTopicProducer:
    """Sends records to one topic; `TopicProducer` for asyncio, with the same options."""

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:6174",
        topic: str = "",
        client: Mapping[str, str] | None = None,
        token: FetchToken | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        self.topic = topic
        self.options = producer_options(topic, options)
        self._brokers = Brokers(
            addresses,
            connect_timeout_ms=self.options.connect_timeout_ms,
            security=parse_grpc_security(client, token),
        )
        self._limits = BatchLimits(
            linger_ms=self.options.linger_ms,
            buffer_records=self.options.buffer_records,
            call_records=self.options.call_records,
            delivery_timeout_ms=self.options.delivery_timeout_ms,
        )
        self._buffer = Accumulator(
            self._limits, idempotent=self.options.idempotent, hash_key=PARTITIONERS[self.options.partitioner]
        )
        self._early: list[tuple[OutgoingRecord, Ticket, int]] = []
        self._open: dict[Ticket, int] = {}
        """The undelivered records in the order of sending, with their sequence in it."""
        self._numbers = count(1)
        self._failures: list[TidemillError] = []
        self._fatal: TidemillError | None = None
        self._closed = False
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._refreshed_ms = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(raises=kind is None)

    async def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
        partition: int | None = None,
    ) -> "asyncio.Future[Delivery]":
        """Put a record into the buffer, and wait while it is full. The future has the position or the error."""
        record = outgoing(value, key, headers, timestamp_ms, partition)
        await self._until(lambda: len(self._open) < self.options.backlog)
        if self._closed:
            raise ProducerClosed
        ticket: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        ticket.add_done_callback(_look_at)
        self.offer(record, ticket)
        return ticket

    def offer(self, record: OutgoingRecord, ticket: Ticket) -> None:
        """Put a record into the buffer, even if it is full."""
        if self._closed:
            ticket.set_exception(ProducerClosed())
            return
        self._open[ticket] = next(self._numbers)
        if self._fatal is not None:
            self._fail(ticket, self._fatal)
        elif not self._buffer.partitions:
            self._early.append((record, ticket, _now_ms()))
        else:
            self._add(record, ticket, _now_ms())
        self._wake.set()

    async def flush(self) -> None:
        """Wait until everything sent before is delivered. DeliveryFailed lists the failures."""
        self._buffer.flush(_now_ms())
        self._wake.set()
        last = next(self._numbers)
        await self._until(lambda: next(iter(self._open.values()), last) >= last)
        failures, self._failures = self._failures, []
        if failures:
            others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            first = str(failures[0]).removeprefix(f"{self.topic}: ")
            raise DeliveryFailed(f"{self.topic}: {first}{others}") from failures[0]

    async def close(self, *, raises: bool = True) -> None:
        """Deliver the sent records, then close the connections; failures since the last flush are raised."""
        if self._closed and self._task.done():
            return
        self._closed = True
        try:
            await self.flush()
        except DeliveryFailed:
            if raises:
                raise
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, *self._calls, return_exceptions=True)
            await self._brokers.close()

    # -- the one task that sends ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._prepare()
            while True:
                await self._step()
        except TidemillError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(ClientError(f"the producer ended with an unexpected error: {error!r}"))
            raise

    async def _prepare(self) -> None:
        """Make sure that the topic exists; while no broker answers, records wait until they time out.

        If no broker has ever answered, this gives up after the connect timeout: the address is probably wrong.
        """
        attempt = 0
        began_s = time.monotonic()
        while not self._buffer.partitions:
            try:
                await self._learn()
            except TidemillError as error:
                if not error.retriable or self._brokers.contact.is_hopeless(began_s):
                    raise
                self._expire_early(error)
                await asyncio.sleep(backoff_ms(attempt) / 1_000)
                attempt += 1
        early, self._early = self._early, []
        for record, ticket, since_ms in early:
            self._add(record, ticket, since_ms)

    async def _learn(self) -> None:
        """Fetch the leaders of the partitions; create the topic if it does not exist."""
        self._refreshed_ms = _now_ms()
        timeout_ms = min(CALL_TIMEOUT_MS, self._limits.delivery_timeout_ms)
        info = await self._brokers.refresh(self.topic, timeout_ms=timeout_ms)
        if info is None:
            if not self.options.create:
                raise UnknownTopicOrPartition(
                    f"topic {self.topic} does not exist; create it with: tidemill topic create {self.topic}"
                )
            await self._create()
            info = await self._brokers.refresh(self.topic, timeout_ms=timeout_ms)
        self._buffer.grow(len(info.partitions) if info is not None else 0)

    async def _create(self) -> None:
        request = wire.CreateTopicRequest(
            name=self.topic,
            partitions=self.options.partitions,
            replication_factor=self.options.replication_factor,
            settings=self.options.settings or {},
        )
        try:
            await self._brokers.call("CreateTopic", request)
        except TopicAlreadyExists:
            return

    async def _step(self) -> None:
        """Send the batches that are ready, then wait until there is more to do."""
        self._wake.clear()
        now_ms = _now_ms()
        late = self._buffer.expired(now_ms)
        for entry in late:
            self._fail(entry.ticket, _timed_out(self._limits))
        if now_ms - self._refreshed_ms >= self.options.metadata_refresh_ms:
            await self._try_to(self._learn())
        lacking = self._buffer.lacking()
        if lacking:
            await self._try_to(self._identify(lacking))
        ready = self._buffer.take(now_ms)
        where = calls(ready, lambda at: self._brokers.leader_of(self.topic, at), self._limits.call_records)
        for address, batches in where:
            call = asyncio.create_task(self._send(address, batches))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        await self._rest()

    async def _rest(self) -> None:
        now_ms = _now_ms()
        next_ms = self._refreshed_ms + self.options.metadata_refresh_ms
        due_ms = self._buffer.next_ms(now_ms)
        if due_ms is not None:
            next_ms = min(next_ms, due_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, (next_ms - now_ms) / 1_000)):
                await self._wake.wait()

    async def _try_to(self, work: Any) -> None:
        """Run a call; ignore a temporary error, because it is retried."""
        try:
            await work
        except TidemillError as error:
            if not error.retriable:
                raise

    async def _identify(self, lacking: Sequence[int]) -> None:
        reply = await self._brokers.call("InitProducer", wire.InitProducerRequest())
        self._buffer.identify(lacking, ProducerState(reply.producer_id, reply.producer_epoch))

    async def _send(self, address: str, batches: Sequence[Batch]) -> None:
        request = wire.ProduceRequest(
            topic=self.topic, acks=ACKS[self.options.acks], batches=[_on_the_wire(batch) for batch in batches]
        )
        try:
            reply = await self._brokers.call_at(address, "Produce", request, timeout_ms=PRODUCE_TIMEOUT_MS)
            outcomes = [(one.base_offset, _error_of(one)) for one in reply.outcomes]
        except TidemillError as error:
            outcomes = [(-1, error)] * len(batches)
        for batch, (base_offset, failure) in zip(batches, outcomes, strict=True):
            self._settle(batch, base_offset, failure)
        if any(failure is not None for _, failure in outcomes):
            self._refreshed_ms = 0  # the leader may have changed
        self._wake.set()

    def _settle(self, batch: Batch, base_offset: int, failure: TidemillError | None) -> None:
        if failure is None:
            self._buffer.done(batch)
            for place, entry in enumerate(batch.entries):
                offset = base_offset + place if base_offset >= 0 else -1
                self._resolve(entry.ticket, Delivery(self.topic, batch.partition, offset))
        elif failure.retriable and _now_ms() - batch.since_ms < self._limits.delivery_timeout_ms:
            self._buffer.again(batch, _now_ms() + max(backoff_ms(batch.attempts - 1), failure.retry_after_ms))
        else:
            self._buffer.broken(batch)
            for entry in batch.entries:
                self._fail(entry.ticket, failure)

    # -- tickets -------------------------------------------------------------------------------------------------------

    def _add(self, record: OutgoingRecord, ticket: Ticket, since_ms: int) -> None:
        try:
            partition = self._buffer.place(record.key, record.partition)
        except IndexError as error:
            self._fail(ticket, UnknownTopicOrPartition(f"{self.topic}: {error}"))
            return
        self._buffer.add(partition, record, record.size, ticket, since_ms)

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait until enough records are delivered, or have failed."""
        while not reached():
            self._settled.clear()
            await self._settled.wait()

    def _resolve(self, ticket: Ticket, delivery: Delivery) -> None:
        self._settle_ticket(ticket)
        if not ticket.done():
            ticket.set_result(delivery)

    def _settle_ticket(self, ticket: Ticket) -> None:
        del self._open[ticket]
        self._settled.set()

    def _fail(self, ticket: Ticket, error: TidemillError) -> None:
        self._settle_ticket(ticket)
        self._failures.append(error)
        if not ticket.done():
            ticket.set_exception(error)

    def _expire_early(self, error: TidemillError) -> None:
        """Fail records that were sent before the topic was known and that have timed out."""
        before_ms = _now_ms() - self._limits.delivery_timeout_ms
        late = [ticket for _, ticket, since_ms in self._early if since_ms <= before_ms]
        self._early = [one for one in self._early if one[2] > before_ms]
        for ticket in late:
            self._fail(ticket, error)

    def _give_up(self, error: TidemillError) -> None:
        """Fail everything, because nothing can be delivered any more."""
        self._fatal = error
        left: list[BufferedRecord] = self._buffer.drain()
        for ticket in [*(entry.ticket for entry in left), *(ticket for _, ticket, _ in self._early)]:
            self._fail(ticket, error)
        self._early = []


def outgoing(
    value: bytes | None,
    key: bytes | None,
    headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]],
    timestamp_ms: int,
    partition: int | None,
) -> OutgoingRecord:
    """Build a record and check its types at once."""
    pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    for name, part in (("value", value), ("key", key), *((f"header {name}", part) for name, part in pairs)):
        if part is not None and not isinstance(part, bytes):
            raise TypeError(f"the {name} must be bytes or None, not {type(part).__name__}")
    return OutgoingRecord(value, key, pairs, timestamp_ms, partition)


def _on_the_wire(batch: Batch) -> wire.Batch:
    made = wire.Batch(partition=batch.partition)
    for entry in batch.entries:
        record: OutgoingRecord = entry.record
        made.records.add(
            key=record.key,
            value=record.value,
            headers=[wire.Header(key=name, value=value) for name, value in record.headers],
            timestamp_ms=record.timestamp_ms,
        )
    if batch.identity is not None:
        made.sequence.producer_id, made.sequence.producer_epoch = batch.identity
        made.sequence.first = batch.first_sequence
    return made


def _error_of(outcome: wire.Produced) -> TidemillError | None:
    return by_name(outcome.error)(outcome.reason) if outcome.error else None


def _timed_out(limits: BatchLimits) -> TidemillError:
    return DeliveryFailed(f"not delivered within {limits.delivery_timeout_ms} ms")


def _look_at(future: "asyncio.Future[Delivery]") -> None:
    """Mark the error as retrieved: flush and close report failures, so the loop must not log unread futures."""
    if not future.cancelled():
        future.exception()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
