"""Producer and consumer for threads: the asyncio faces, run on an event loop in the background.

A producer may be used by several threads; a consumer by one at a time, because the next record that is asked for says
that the one before it is handled.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Self, Unpack

from tidemill.client.background import Background
from tidemill.client.topics.consumer import AsyncConsumer, ConsumerClosed, TopicRecord
from tidemill.client.topics.options import ConsumerKeywords, ProducerKeywords
from tidemill.client.topics.producer import AsyncTopicProducer, Delivery, ProducerClosed, outgoing
from tidemill.model.topics import TopicPartition


class TopicProducer:
    """Sends records to one topic, which is created if it is not there.

        with TopicProducer("127.0.0.1:6174", "orders", partitions=3) as producer:
            producer.send(b"two teapots", key=b"ada")

    Options, and what they are when left out: `partitions`, `replication_factor`, `settings` (the broker's) of a topic
    that is created, and `create=True`; `acks="all"` (or 1), `idempotent=True`; `linger_ms=100`, `buffer_records=1000`,
    `call_records=100`, when records leave and how many at once; `delivery_timeout_ms=120000`; `connect_timeout_ms=3000`
    where nobody has ever answered; `metadata_refresh_ms=30000`; `partitioner="consistent_random"`, librdkafka's, or
    "murmur2_random", Java's.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:6174",
        topic: str = "",
        **options: Unpack[ProducerKeywords],
    ) -> None:
        self.topic = topic
        self._background = Background("tidemill-producer", ProducerClosed())
        self._async = self._background.open(lambda: AsyncTopicProducer(addresses, topic, **options))
        self._room = threading.BoundedSemaphore(self._async.options.backlog)
        self._end = self._background.ends_with(self, self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:
                raise

    def send(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int = 0,
        partition: int | None = None,
    ) -> "Future[Delivery]":
        """Put a record into the buffer, waiting for room; the future tells where it is, or why it is nowhere."""
        record = outgoing(value, key, headers, timestamp_ms, partition)
        self._room.acquire()
        ticket: Future[Delivery] = Future()
        ticket.add_done_callback(lambda _: self._room.release())
        try:
            self._background.tell(self._async.offer, record, ticket)
        except ProducerClosed:
            ticket.cancel()
            raise
        return ticket

    def flush(self) -> None:
        """Return when everything that was sent before is delivered; DeliveryFailed tells what was not."""
        self._background.run(self._async.flush())

    def close(self) -> None:
        """Deliver what was sent, then end; DeliveryFailed tells what was not delivered since the last flush."""
        self._end()


class Consumer:
    """One member of a group: hands out the records of its partitions for ever.

        with Consumer("127.0.0.1:6174", group="mailer", topics=["orders"]) as consumer:
            for record in consumer:
                print(record.key, record.value)

    A record is handled when the next one is asked for; what is handled is committed behind it. A topic that is not
    there is waited for, and named by a warning.

    Options, and what they are when left out: `reset="earliest"` (or "latest"), where a group begins that has committed
    nothing; `auto_commit=True`, `commit_records=100`, `commit_interval_ms=500`; `poll_records=100`,
    `poll_interval_ms=500`, `buffer_records=256`, how many records come at once, and wait here;
    `rebalance_timeout_ms=60000`; `max_handling_ms=300000`, how long a record may be in hand; `connect_timeout_ms=3000`
    where nobody has ever answered; `client_id="tidemill"`, `rack=""`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:6174",
        group: str = "",
        topics: str | Sequence[str] = (),
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        self._background = Background("tidemill-consumer", ConsumerClosed())
        self._async = self._background.open(lambda: AsyncConsumer(addresses, group, topics, **options))
        self._end = self._background.ends_with(self, self._async.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self._background.is_closed:
            self._background.run(self._async.close(handled=False))
        self.close()

    def __iter__(self) -> Iterator[TopicRecord]:
        while (record := self.next()) is not None:
            yield record

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member has for now."""
        return self._async.assignment

    def next(self, timeout_ms: int | None = None) -> TopicRecord | None:
        """The next record, and the one before it is handled; None when none came in time."""
        if self._background.is_closed:
            return None
        return self._async.take() or self._background.run(self._async.next(timeout_ms))

    def commit(self) -> None:
        """Commit everything up to the record in hand, which counts as handled; an error means that nothing was."""
        self._background.run(self._async.commit())

    def close(self) -> None:
        """Commit what was handled, the record in hand with it, and leave the group."""
        self._end()
