"""Produce requests on their way, several at a time: the broker writes one to the disk while the next ones travel.

For batches with a producer id only. The broker knows by their sequences what it has already and what is missing, so
after an error everything that is not known to be written is sent again, in its order and one by one: what was written
nevertheless is recognised.

Two rules keep that true. A broker remembers the last five batches of a producer in a partition, so no more than that
are on their way. And a broker that does not know a producer takes whatever sequence comes first, so the first batch to
a partition travels alone.
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
"""Above it nothing is sent before something is answered: more keeps nobody busier, and falls out of all caches."""
GRACE_S = 2.0
"""The broker may wait for replicas as long as the request timeout; its answer needs a little longer."""

Batches = Mapping[TopicPartition, Buffer]


class _Flight(NamedTuple):
    batches: Batches
    size: int
    asked: list[PendingRequest]


class ProducePipe:
    """What one producer sends, in order. For one thread, that of its router."""

    def __init__(self, router: RequestRouter, ask: Callable[[Batches], Request]) -> None:
        self._router = router
        self._ask = ask
        self._flights: deque[_Flight] = deque()
        self._known: set[TopicPartition] = set()

    def send(self, batches: Batches) -> None:
        """Send one batch to each of these partitions; an error is raised by a later call, or by `drain`."""
        size = sum(map(len, batches.values()))
        while self._flights and not (batches.keys() <= self._known and self._has_room(size)):
            self._land()
        failures: list[TidemillError] = []  # what was not asked is not answered: `_land` sees to it
        self._flights.append(_Flight(batches, size, self._router.ask_leaders(batches, self._ask, failures)))

    def drain(self) -> None:
        """Wait until the brokers have everything."""
        while self._flights:
            self._land()

    def _has_room(self, size: int) -> bool:
        travelling = sum(flight.size for flight in self._flights)
        return len(self._flights) < IN_FLIGHT_MAX and travelling + size <= IN_FLIGHT_BYTES

    def _land(self) -> None:
        """Wait for the oldest."""
        left = self._left(self._flights.popleft())
        if left:
            self._again(left)

    def _again(self, left: Batches) -> None:
        """Send what failed once more, and what was behind it and failed for that reason or another."""
        behind = [self._left(flight) for flight in self._flights]
        self._flights.clear()
        self._router.distrust()
        for batches in (left, *behind):
            written = self._router.at_leaders("produce", batches, self._ask, produced, extra_s=GRACE_S)
            self._known.update(written)

    def _left(self, flight: _Flight) -> Batches:
        """The batches of a request that are not known to be written, once all of its answers are there."""
        left = dict(flight.batches)
        for connection, number in flight.asked:
            try:
                outcomes = produced(connection.answer(number, extra_s=GRACE_S))
            except ClientError:
                continue
            written = [partition for partition, outcome in outcomes.items() if isinstance(outcome, Produced)]
            self._known.update(written)
            for partition in written:
                left.pop(partition, None)
        return left
