"""Sends each request to the right broker and retries when routes change: the shell under every call of `KafkaClient`.

Requests go to the leader of their partition, to a coordinator, or to any broker. A response that names another broker,
or a broken connection, marks the routes as stale. They are fetched again before the next attempt. `retries` limits the
attempts. A call sends its requests to all leaders before it reads the first response, so that the leaders work in
parallel.
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
from tidemill.client.kafka.retries import pause_ms, prefixed
from tidemill.client.kafka.topology import BrokerEndpoint, Topology
from tidemill.model.errors import KafkaError, TidemillError, of_code
from tidemill.model.topics import TopicPartition

V = TypeVar("V")
R = TypeVar("R")


class Coordinated(IntEnum):
    """The kind of a coordinator's key, by Kafka's number."""

    GROUP = 0
    TRANSACTION = 1


class PendingRequest(NamedTuple):
    """A request in flight: its connection, and its number for the response."""

    connection: BlockingConnection
    number: int


class RequestRouter:
    """The connections of one client and its metadata of the cluster. For one thread."""

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
        """Fetch the metadata of these topics (None: all) and replace the topology."""
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
        """Call `attempt`, and repeat it after retriable errors."""
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
        """The responses of the leaders of these partitions. Only partitions that failed are requested again."""
        found: dict[TopicPartition, R] = {}
        left = dict(wanted)
        patience = self._patience(what)
        while left:
            failures: list[TidemillError] = []
            for answer in self._round(left, ask, failures, extra_s):
                for partition, outcome in read(answer).items():
                    if isinstance(outcome, KafkaError):
                        failures.append(prefixed(str(partition), outcome))
                    elif left.pop(partition, None) is not None:
                        found[partition] = outcome
            if left:
                self.distrust()
                # Report a final error rather than a retriable one.
                failures.sort(key=lambda error: error.retriable)
                patience(
                    failures[0] if failures else ClientError(f"the response of the broker lacks {next(iter(left))}")
                )
        return found

    def ask_leaders(
        self,
        wanted: Mapping[TopicPartition, V],
        ask: Callable[[Mapping[TopicPartition, V]], Request],
        failures: list[TidemillError],
    ) -> list[PendingRequest]:
        """Send requests to the leaders without waiting for responses. Errors of partitions are added to `failures`."""
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
        """The response of the coordinator. `read` raises the error in it."""

        def attempt() -> R:
            address = self._coordinators.get((kind, key))
            if address is None:
                address = self._coordinators[kind, key] = self.find_coordinator(kind, key)
            return read(self._to(address).call(request))

        return self.persist(what, attempt)

    def find_coordinator(self, kind: Coordinated, key: str) -> BrokerEndpoint:
        """The address of the coordinator of a group or transactional id."""
        response = self.anyone().call(plain(FIND_COORDINATOR, {"key": key, "key_type": int(kind)})).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        return BrokerEndpoint(response.host, response.port)

    def anyone(self) -> BlockingConnection:
        """A connection to any broker: an open one, a known broker, or a bootstrap server."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        failure: ClientError | None = None
        for address in dict.fromkeys((*self.topology.brokers.values(), *self.options.bootstrap)):
            try:
                return self._to(address)
            except BrokerUnreachable as error:
                failure = error
        raise failure or BrokerUnreachable("no broker is known; set bootstrap.servers")

    def everyone(self) -> Iterator[BlockingConnection]:
        """A connection to each broker of the cluster that is reachable."""
        for address in self.refresh(()).brokers.values():
            with suppress(BrokerUnreachable):
                yield self._to(address)

    def distrust(self) -> None:
        """Mark all routes as stale, so that they are fetched again before their next use."""
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
        """A function that waits after a retriable error and raises a final one."""
        began = time.monotonic()
        attempt = 0

        def wait(error: TidemillError) -> None:
            nonlocal attempt
            waited_ms = int((time.monotonic() - began) * 1000)
            pause = pause_ms(
                error, attempt=attempt, waited_ms=waited_ms, contacted=self._contacted, options=self.options
            )
            if pause is None:
                raise prefixed(what, error)
            attempt += 1
            time.sleep(pause / 1000)

        return wait
