"""Produce requests, several in flight: the broker writes one to disk while the next ones are on the network.

Only for batches with a producer id. The broker recognises by their sequence numbers which batches it has. After an
error, every batch not known to be written is sent again, in order and one by one. The broker ignores the ones that it
already has.

Two rules keep this correct. A broker remembers the last five batches of a producer in a partition, so at most five are
in flight. A broker that does not know a producer accepts any first sequence number, so the first batch to a partition
is sent alone.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.produce import Produced, produced
from tidemill.client.kafka.protocol import Buffer, Request
from tidemill.client.kafka.routing import PendingRequest, RequestRouter
from tidemill.model.errors import TidemillError
from tidemill.model.topics import TopicPartition

IN_FLIGHT_MAX = 5
IN_FLIGHT_BYTES = 4 * 1024 * 1024
"""Above it a send waits for a response: more bytes would not raise the throughput, and do not fit in CPU caches."""
GRACE_S = 2.0
"""Added to the wait for a response: the broker may wait for replicas for the whole request timeout."""

Batches = Mapping[TopicPartition, Buffer]


class _InFlight(NamedTuple):
    batches: Batches
    size: int
    asked: list[PendingRequest]


class ProducePipe:
    """The batches of one producer, sent in order. For one thread, that of its router."""

    def __init__(self, router: RequestRouter, ask: Callable[[Batches], Request]) -> None:
        self._router = router
        self._ask = ask
        self._in_flight: deque[_InFlight] = deque()
        self._known: set[TopicPartition] = set()

    def send(self, batches: Batches) -> None:
        """Send one batch to each of these partitions. A later call, or `drain`, raises the errors."""
        size = sum(map(len, batches.values()))
        while self._in_flight and not (batches.keys() <= self._known and self._has_capacity(size)):
            self._wait_for_oldest()
        failures: list[TidemillError] = []  # ignored: `_wait_for_oldest` resends batches that got no response
        self._in_flight.append(_InFlight(batches, size, self._router.ask_leaders(batches, self._ask, failures)))

    def drain(self) -> None:
        """Wait until the brokers have acknowledged everything."""
        while self._in_flight:
            self._wait_for_oldest()

    def _has_capacity(self, size: int) -> bool:
        in_flight_bytes = sum(sent.size for sent in self._in_flight)
        return len(self._in_flight) < IN_FLIGHT_MAX and in_flight_bytes + size <= IN_FLIGHT_BYTES

    def _wait_for_oldest(self) -> None:
        """Wait for the responses to the oldest request."""
        left = self._left(self._in_flight.popleft())
        if left:
            self._resend(left)

    def _resend(self, left: Batches) -> None:
        """Send the failed batches again, and then the batches behind them that failed for any reason."""
        behind = [self._left(sent) for sent in self._in_flight]
        self._in_flight.clear()
        self._router.distrust()
        for batches in (left, *behind):
            written = self._router.at_leaders("produce", batches, self._ask, produced, extra_s=GRACE_S)
            self._known.update(written)

    def _left(self, sent: _InFlight) -> Batches:
        """The batches of a request that are not known to be written, after all its responses have arrived."""
        left = dict(sent.batches)
        for connection, number in sent.asked:
            try:
                outcomes = produced(connection.answer(number, extra_s=GRACE_S))
            except ClientError:
                continue
            written = [partition for partition, outcome in outcomes.items() if isinstance(outcome, Produced)]
            self._known.update(written)
            for partition in written:
                left.pop(partition, None)
        return left
