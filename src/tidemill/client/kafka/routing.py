"""Which broker to ask, and again when it was the wrong one: the shell under every call of `RawClient`.

Requests go to the leader of their partition, to a coordinator, or to anyone. An answer that says "not me", and a
connection that breaks, make the routes stale: they are asked for anew before the next attempt. `retries` says how long
that goes on. All leaders of one call are asked before the first answer is read, so they work at the same time.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, TypeVar

from tidemill.client.kafka.apis import FIND_COORDINATOR, METADATA
from tidemill.client.kafka.connection import BlockingConnection
from tidemill.client.kafka.errors import BrokerUnreachable, ClientError
from tidemill.client.kafka.options import ClientOptions
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.client.kafka.retries import pause_ms, told
from tidemill.client.kafka.topology import BrokerEndpoint, Topology
from tidemill.model.errors import KafkaError, TidemillError, of_code
from tidemill.model.topics import TopicPartition

V = TypeVar("V")
R = TypeVar("R")


class Coordinated(IntEnum):
    """What a coordinator coordinates, by Kafka's number."""

    GROUP = 0
    TRANSACTION = 1


class PendingRequest(NamedTuple):
    """A request on its way: who was asked, and the ticket for the answer."""

    connection: BlockingConnection
    number: int


class RequestRouter:
    """The connections of one client and what it knows of the cluster. For one thread."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.topology = Topology()
        self._connections: dict[BrokerEndpoint, BlockingConnection] = {}
        self._coordinators: dict[tuple[Coordinated, str], BrokerEndpoint] = {}
        self._stale = False
        self._contacted = False

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def refresh(self, topics: Collection[str] | None, *, create: bool = False) -> Topology:
        """Ask who leads these topics (None: all); what the answer says of them is the new topology."""
        wanted = None if topics is None else [{"name": name, "topic_id": None} for name in topics]
        fields = {"topics": wanted, "allow_auto_topic_creation": create}
        known = Topology() if topics is None else self.topology
        self.topology = known.with_answer(self.anyone().call(plain(METADATA, fields)))
        self._stale = False
        return self.topology

    def leader(self, partition: TopicPartition) -> BlockingConnection:
        """The connection to the leader of a partition."""
        self._know({partition.topic})
        return self._to(self.topology.brokers[self.topology.leader_of(partition)])

    def persist(self, what: str, attempt: Callable[[], R]) -> R:
        """The result of `attempt`, which is made again after errors that may pass."""
        patience = self._patience(what)
        while True:
            try:
                return attempt()
            except (KafkaError, ClientError) as error:
                self.distrust()
                patience(error)

    def at_leaders(
        self,
        what: str,
        wanted: Mapping[TopicPartition, V],
        ask: Callable[[Mapping[TopicPartition, V]], Request],
        read: Callable[[Answer], Mapping[TopicPartition, R | KafkaError]],
        *,
        extra_s: float = 0.0,
    ) -> dict[TopicPartition, R]:
        """What the leaders of these partitions answer; partitions that fail are asked again, the others not."""
        found: dict[TopicPartition, R] = {}
        left = dict(wanted)
        patience = self._patience(what)
        while left:
            failures: list[TidemillError] = []
            for answer in self._round(left, ask, failures, extra_s):
                for partition, outcome in read(answer).items():
                    if isinstance(outcome, KafkaError):
                        failures.append(told(str(partition), outcome))
                    elif left.pop(partition, None) is not None:
                        found[partition] = outcome
            if left:
                self.distrust()
                # An error that will not pass is told rather than one that may.
                failures.sort(key=lambda error: error.retriable)
                patience(failures[0] if failures else ClientError(f"the broker left out {next(iter(left))}"))
        return found

    def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, V],
        ask: Callable[[Mapping[TopicPartition, V]], Request],
        failures: list[TidemillError],
    ) -> list[PendingRequest]:
        """Ask the leaders of these partitions and wait for none; why some were not asked is added to `failures`."""
        shares: dict[BrokerEndpoint, dict[TopicPartition, V]] = defaultdict(dict)
        asked: list[PendingRequest] = []
        try:
            self._know({partition.topic for partition in wanted})
        except (KafkaError, ClientError) as error:
            failures.append(error)
            return []
        for partition, value in wanted.items():
            try:
                shares[self.topology.brokers[self.topology.leader_of(partition)]][partition] = value
            except KafkaError as error:
                failures.append(error)
        for address, share in shares.items():
            try:
                connection = self._to(address)
                asked.append(PendingRequest(connection, connection.ask(ask(share))))
            except ClientError as error:
                failures.append(error)
        return asked

    def at_coordinator(
        self, what: str, kind: Coordinated, key: str, request: Request, read: Callable[[Answer], R]
    ) -> R:
        """What the coordinator answers; `read` raises the error in an answer."""

        def attempt() -> R:
            address = self._coordinators.get((kind, key))
            if address is None:
                address = self._coordinators[kind, key] = self.find_coordinator(kind, key)
            return read(self._to(address).call(request))

        return self.persist(what, attempt)

    def find_coordinator(self, kind: Coordinated, key: str) -> BrokerEndpoint:
        """Who coordinates a group or transactional id."""
        told_of = self.anyone().call(plain(FIND_COORDINATOR, {"key": key, "key_type": int(kind)})).message()
        if told_of.error_code:
            raise of_code(told_of.error_code, told_of.error_message or "")
        return BrokerEndpoint(told_of.host, told_of.port)

    def anyone(self) -> BlockingConnection:
        """A connection to whoever answers: an open one, a broker known from before, or one of the given addresses."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        failure: ClientError | None = None
        for address in dict.fromkeys((*self.topology.brokers.values(), *self.options.bootstrap)):
            try:
                return self._to(address)
            except BrokerUnreachable as error:
                failure = error
        raise failure or BrokerUnreachable("no broker is known")

    def everyone(self) -> Iterator[BlockingConnection]:
        """A connection to each broker of the cluster that answers; the others are left out."""
        for address in self.refresh(()).brokers.values():
            with suppress(BrokerUnreachable):
                yield self._to(address)

    def distrust(self) -> None:
        """Ask anew where everything is before it is used again."""
        self._stale = True
        self._coordinators.clear()

    def _know(self, topics: Collection[str]) -> None:
        unknown = [name for name in topics if name not in self.topology.topics]
        if self._stale or unknown:
            self.refresh(topics if self._stale else unknown)

    def _to(self, address: BrokerEndpoint) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            connection = self._connections[address] = BlockingConnection(address, self.options)
            self._contacted = True
        return connection

    def _round(
        self,
        left: Mapping[TopicPartition, V],
        ask: Callable[[Mapping[TopicPartition, V]], Request],
        failures: list[TidemillError],
        extra_s: float,
    ) -> list[Answer]:
        answers: list[Answer] = []
        for connection, number in self.ask_leaders(left, ask, failures):
            try:
                answers.append(connection.answer(number, extra_s=extra_s))
            except ClientError as error:
                failures.append(error)
        return answers

    def _patience(self, what: str) -> Callable[[TidemillError], None]:
        """A function that waits after an error that may pass and raises one that will not."""
        began = time.monotonic()
        attempt = 0

        def wait(error: TidemillError) -> None:
            nonlocal attempt
            waited_ms = int((time.monotonic() - began) * 1000)
            pause = pause_ms(
                error, attempt=attempt, waited_ms=waited_ms, contacted=self._contacted, options=self.options
            )
            if pause is None:
                raise told(what, error)
            attempt += 1
            time.sleep(pause / 1000)

        return wait
