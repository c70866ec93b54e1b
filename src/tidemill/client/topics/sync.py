"""The synchronous producer and consumer: the asyncio classes, run on an event loop in the background.

Several threads may use a producer. Only one at a time may use a consumer, because asking for the next record marks the
previous one as handled.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Self, Unpack

from tidemill.client.background import Background
from tidemill.client.grpc_login import FetchToken
from tidemill.client.topics.consumer import AsyncConsumer, ConsumerClosed, TopicRecord
from tidemill.client.topics.options import ConsumerKeywords, ProducerKeywords
from tidemill.client.topics.producer import AsyncTopicProducer, Delivery, ProducerClosed, outgoing
from tidemill.model.topics import TopicPartition


class TopicProducer:
    """Sends records to one topic, which is created if it does not exist.

        with TopicProducer("127.0.0.1:6174", "orders", partitions=3) as producer:
            producer.send(b"two teapots", key=b"ada")

    Options and their defaults: `partitions`, `replication_factor`, `settings` (the broker's) of a topic that is
    created, and `create=True`; `acks="all"` (or 1), `idempotent=True`; `linger_ms=100`, `buffer_records=1000`,
    `call_records=100`, when records are sent and how many at once; `delivery_timeout_ms=120000`;
    `connect_timeout_ms=3000` while no broker has ever answered; `metadata_refresh_ms=30000`;
    `partitioner="consistent_random"`, librdkafka's, or "murmur2_random", Java's. `client` has settings for TLS and
    login with the names of Kafka clients, `token` is a function that returns a token; see `tidemill.Timeline`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:6174",
        topic: str = "",
        client: Mapping[str, str] | None = None,
        token: FetchToken | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        self.topic = topic
        self._background = Background("tidemill-producer", ProducerClosed())
        self._async = self._background.open(
            lambda: AsyncTopicProducer(addresses, topic, client=client, token=token, **options)
        )
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
        """Put a record into the buffer, and wait while it is full. The future has the position or the error."""
        record = outgoing(value, key, headers, timestamp_ms, partition)
        self._room.acquire()
        ticket: Future[Delivery] = Future()
        ticket.add_done_callback(lambda _: self._room.release())
        try:
            self._background.call_soon(self._async.offer, record, ticket)
        except ProducerClosed:
            ticket.cancel()
            raise
        return ticket

    def flush(self) -> None:
        """Wait until everything sent before is delivered. DeliveryFailed lists the failures."""
        self._background.run(self._async.flush())

    def close(self) -> None:
        """Deliver the sent records, then end. DeliveryFailed lists the failures since the last flush."""
        self._end()


class Consumer:
    """One member of a group: delivers the records of its partitions without end.

        with Consumer("127.0.0.1:6174", group="mailer", topics=["orders"]) as consumer:
            for record in consumer:
                print(record.key, record.value)

    A record counts as handled when the application asks for the next one. Handled records are committed in the
    background. The consumer waits for a topic that does not exist, and logs a warning.

    Options and their defaults: `reset="earliest"` (or "latest"), the start of a group without committed offsets;
    `auto_commit=True`, `commit_records=100`, `commit_interval_ms=500`; `poll_records=100`, `poll_interval_ms=500`,
    `buffer_records=256`, how many records are fetched at once and buffered; `rebalance_timeout_ms=60000`;
    `max_handling_ms=300000`, how long one record may be handled; `connect_timeout_ms=3000` while no broker has ever
    answered; `client_id="tidemill"`, `rack=""`. `client` has settings for TLS and login with the names of Kafka
    clients, `token` is a function that returns a token; see `tidemill.Timeline`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:6174",
        group: str = "",
        topics: str | Sequence[str] = (),
        client: Mapping[str, str] | None = None,
        token: FetchToken | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        self._background = Background("tidemill-consumer", ConsumerClosed())
        self._async = self._background.open(
            lambda: AsyncConsumer(addresses, group, topics, client=client, token=token, **options)
        )
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
        """The partitions that are assigned to this member now."""
        return self._async.assignment

    def next(self, timeout_ms: int | None = None) -> TopicRecord | None:
        """Return the next record; the previous one counts as handled. None on a timeout."""
        if self._background.is_closed:
            return None
        return self._async.take() or self._background.run(self._async.next(timeout_ms))

    def commit(self) -> None:
        """Commit up to the current record, which counts as handled. After an error, nothing was committed."""
        self._background.run(self._async.commit())

    def close(self) -> None:
        """Commit the handled records, including the current one, and leave the group."""
        self._end()
