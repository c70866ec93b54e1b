"""`KafkaClient`: a small Kafka client that moves sealed record batches, for programs that decode them elsewhere.

It is blocking, serves one thread, and keeps one connection per broker. Every call retries after lost connections and
moved leaders (see `retries`). When that does not help, it raises an error of one line: the KafkaError of the broker, or
a ClientError. It works with any Kafka broker from 2.1 on.

A batch without a producer id may be written twice if it is sent again after a lost connection. A batch with an id from
`init_producer` and a sequence number is written once.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from tidemill.client.kafka import (
    acls,
    active_producers,
    brokers,
    coordinators,
    groups,
    quotas,
    reassignment,
    topic_admin,
    topic_configs,
    users,
)
from tidemill.client.kafka.acls import AclFields, AclFilterFields
from tidemill.client.kafka.active_producers import ActiveProducer
from tidemill.client.kafka.apis import DESCRIBE_LOG_DIRS, LIST_OFFSETS
from tidemill.client.kafka.brokers import Described
from tidemill.client.kafka.coordinators import GroupOffset, ProducerIdentity
from tidemill.client.kafka.errors import InvalidClientOption, NotServed
from tidemill.client.kafka.fetch import (
    FETCH_BYTES,
    FETCH_WAIT_MS,
    FetchedBatches,
    FetchPosition,
    fetch_request,
    fetched,
)
from tidemill.client.kafka.options import ClientOptions, parse_options
from tidemill.client.kafka.pipeline import GRACE_S, ProducePipe
from tidemill.client.kafka.produce import ALL_REPLICAS, Produced, produce_request, produced
from tidemill.client.kafka.protocol import Answer, Buffer, Request, plain
from tidemill.client.kafka.quotas import DescribedQuotas, QuotaChange
from tidemill.client.kafka.ranges import read_range
from tidemill.client.kafka.reassignment import Carried, Moving
from tidemill.client.kafka.routing import Coordinated, PendingRequest, RequestRouter
from tidemill.client.kafka.topic_admin import TopicToCreate
from tidemill.client.kafka.topic_configs import DescribedSetting
from tidemill.client.kafka.topology import BrokerEndpoint, TopicInfo, Topology
from tidemill.client.kafka.users import DescribedUser, ScramDeletion, ScramUpsertion
from tidemill.model.errors import KafkaError, UnknownTopicOrPartition, of_code
from tidemill.model.topics import TopicPartition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
TRANSACTION_TIMEOUT_MS = 60_000
_CONSUMER = -1

R = TypeVar("R")


class ListedOffset(NamedTuple):
    """One result of ListOffsets. All fields are -1 when no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


class KafkaClient:
    """A client of one cluster. `options` are Kafka's own, at least `bootstrap.servers`."""

    def __init__(self, options: Mapping[str, str] | ClientOptions) -> None:
        self._options = options if isinstance(options, ClientOptions) else parse_options(options)
        self._router = RequestRouter(self._options)
        self._timeout_ms = self._router.options.request_timeout_ms

    def another(self) -> "KafkaClient":
        """A client of the same cluster with its own connections, for another thread."""
        return KafkaClient(self._options)

    def close(self) -> None:
        """Close all connections."""
        self._router.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def greet(self) -> None:
        """Fetch the metadata of the brokers without a retry, so that an error is raised at once."""
        self._router.refresh(())

    # Topics and offsets

    def metadata(self, topics: Iterable[str], *, create: bool = False) -> dict[str, TopicInfo]:
        """The metadata of these topics. UnknownTopicOrPartition names one that does not exist.

        `create` lets a broker with auto.create.topics.enable create a missing topic.
        """
        names = sorted(set(topics))

        def ask() -> Topology:
            topology = self._router.refresh(names, create=create)
            for error in (topology.missing[name] for name in names if name in topology.missing):
                # Only a caller that creates the topic waits until it exists.
                if create or not isinstance(error, UnknownTopicOrPartition):
                    raise error
            return topology

        topology = self._router.persist("", ask)
        for name in names:
            if name in topology.missing:
                raise topology.missing[name]
        return {name: topology.topics[name] for name in names}

    def known(self, topics: Iterable[str]) -> list[TopicInfo]:
        """The cached metadata of these topics, from any earlier call. No request is sent."""
        return [known for name in topics if (known := self._router.topology.topics.get(name)) is not None]

    def topics(self, pattern: str | None = None) -> dict[str, TopicInfo]:
        """All topics that are not internal, or those whose name matches the pattern."""
        try:
            matcher = re.compile(pattern or "")
        except re.error as error:
            raise InvalidClientOption(f"{pattern!r} is not a regular expression: {error}") from None
        topology = self._router.persist("", lambda: self._router.refresh(None))
        found = topology.topics.values()
        return {topic.name: topic for topic in found if not topic.internal and matcher.search(topic.name)}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset of EARLIEST, of LATEST or of the first record not older than a time in ms, for each partition.

        MAX_TIMESTAMP is the record with the highest timestamp; brokers know it from Kafka 3.0 on. With `committed`,
        LATEST is the start of the oldest open transaction.
        """

        def ask(share: Mapping[TopicPartition, int]) -> Request:
            topics = [
                {"name": name, "partitions": [{"partition_index": index, "timestamp": at} for index, at in entries]}
                for name, entries in _by_topic(share).items()
            ]
            fields = {"replica_id": _CONSUMER, "isolation_level": int(committed), "topics": topics}
            return plain(LIST_OFFSETS, fields)

        return self._router.at_leaders("list offsets", wanted, ask, _found_offsets)

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The size in bytes of each partition at its leader."""

        def ask(share: Mapping[TopicPartition, int]) -> Request:
            topics = [
                {"topic": name, "partitions": [index for index, _ in entries]}
                for name, entries in _by_topic(share).items()
            ]
            return plain(DESCRIBE_LOG_DIRS, {"topics": topics})

        return self._router.at_leaders("ask for sizes", dict.fromkeys(partitions, 0), ask, _found_sizes)

    def create_topic(self, topic: TopicToCreate, *, validate_only: bool = False) -> None:
        """Create a topic, or only check whether it can be created."""
        topic_admin.create(self._router, topic, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        topic_admin.delete(self._router, name)

    def extend_topic(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, so that it has this many."""
        topic_admin.extend(self._router, name, partitions)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset of each partition; -1 is its end. Returns the new start offsets."""
        return topic_admin.delete_records(self._router, before)

    def topic_settings(self, name: str) -> list[DescribedSetting]:
        """Every setting of a topic, by name."""
        return topic_configs.describe(self._router, name)

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set settings of a topic; None removes its override."""
        topic_configs.alter(self._router, name, changes)

    def active_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """The producers that each partition remembers."""
        return active_producers.describe(self._router, partitions)

    # Brokers

    def cluster(self) -> Described:
        """The controller and every registered broker, including fenced ones."""
        return brokers.describe(self._router)

    def forget_broker(self, node_id: int) -> None:
        """Unregister a broker that will not return."""
        brokers.forget(self._router, node_id)

    # Users and ACLs

    def users(self) -> list[DescribedUser]:
        """Every user that logs in by SCRAM."""
        return users.describe(self._router)

    def alter_users(self, changes: Sequence[ScramUpsertion | ScramDeletion]) -> dict[str, KafkaError | None]:
        """Change credentials. Returns the error of each user, or None."""
        return users.alter(self._router, changes)

    def acls(self, wanted: AclFilterFields) -> list[AclFields]:
        """The ACLs that a filter selects."""
        return acls.describe(self._router, wanted)

    def create_acls(self, bindings: Sequence[AclFields]) -> list[KafkaError | None]:
        """Create ACLs. Returns the error of each, or None, in their order."""
        return acls.create(self._router, bindings)

    def delete_acls(self, bindings: Sequence[AclFields]) -> list[KafkaError | None]:
        """Delete these ACLs. Returns the error of each, or None, in their order."""
        return acls.delete(self._router, bindings)

    def quotas(self) -> list[DescribedQuotas]:
        """The quotas of every owner."""
        return quotas.describe(self._router)

    def alter_quotas(self, changes: Sequence[QuotaChange], *, dry_run: bool = False) -> list[KafkaError | None]:
        """Change quotas. Returns the error of each owner, or None, in their order."""
        return quotas.alter(self._router, changes, dry_run=dry_run)

    # Replicas

    def carriers(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, Carried]:
        """The replicas of the partitions of these topics, or of all topics."""
        return reassignment.carriers(self._router, topics)

    def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions to these brokers; None cancels a move. Returns the error of each partition, or None."""
        return reassignment.reassign(self._router, wanted)

    def reassignments(self) -> dict[TopicPartition, Moving]:
        """Every partition that is being moved."""
        return reassignment.reassignments(self._router)

    def elect_preferred(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        """Elect the first replica of each partition as leader. Returns the error of each partition, or None."""
        return reassignment.elect_preferred(self._router, partitions)

    # Records

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        committed: bool = False,
        max_wait_ms: int = FETCH_WAIT_MS,
    ) -> FetchedBatches:
        """Batches from the one that holds `offset` on. Returns at least one batch if any exists, whatever its size."""
        wanted = FetchPosition(offset, max_bytes, committed, max_wait_ms)
        return self._router.at_leaders(
            f"fetch from offset {offset}",
            {partition: wanted},
            lambda share: fetch_request(partition, share[partition]),
            lambda answer: {partition: fetched(answer, wanted)},
            extra_s=max_wait_ms / 1000,
        )[partition]

    def read_range(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        max_bytes: int = FETCH_BYTES,
        committed: bool = False,
    ) -> Iterator[FetchedBatches]:
        """The batches that hold the offsets from `start` to before `end`, with one request sent ahead.

        The first and last batches may reach beyond the range. OffsetOutOfRange when `start` was deleted.
        """
        return read_range(self._router, self.fetch, partition, start, end, max_bytes=max_bytes, committed=committed)

    def produce(
        self,
        partition: TopicPartition,
        batch: Buffer,
        *,
        acks: int = ALL_REPLICAS,
        transactional_id: str | None = None,
    ) -> Produced:
        """Append one sealed batch."""
        return self.produce_all({partition: batch}, acks=acks, transactional_id=transactional_id)[partition]

    def produce_all(
        self,
        batches: Mapping[TopicPartition, Buffer],
        *,
        acks: int = ALL_REPLICAS,
        transactional_id: str | None = None,
    ) -> dict[TopicPartition, Produced]:
        """Append one sealed batch to each of these partitions, on all leaders in parallel."""

        def ask(share: Mapping[TopicPartition, Buffer]) -> Request:
            return self._produce_request(share, acks, transactional_id)

        if acks == 0:
            for partition in batches:
                self._send(partition, ask({partition: batches[partition]}))
            return dict.fromkeys(batches, Produced())
        return self._router.at_leaders("produce", batches, ask, produced, extra_s=GRACE_S)

    def pipe(self, transactional_id: str | None = None) -> ProducePipe:
        """A pipeline that appends sealed batches with a producer id without waiting for each response."""
        return ProducePipe(self._router, lambda share: self._produce_request(share, ALL_REPLICAS, transactional_id))

    def _produce_request(
        self, share: Mapping[TopicPartition, Buffer], acks: int, transactional_id: str | None
    ) -> Request:
        return produce_request(share, acks=acks, timeout_ms=self._timeout_ms, transactional_id=transactional_id)

    def _send(self, partition: TopicPartition, request: Request) -> None:
        self._router.persist(f"produce to {partition}", lambda: self._router.leader(partition).ask(request))

    # Groups

    def find_coordinator(self, group: str) -> BrokerEndpoint:
        """The address of the coordinator of a group."""
        return self._router.persist(f"group {group}", lambda: self._router.find_coordinator(Coordinated.GROUP, group))

    def group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """The committed offsets of a group, of these partitions or of all. Partitions without a commit are left out."""
        request = coordinators.offset_fetch(group, partitions)
        return self._at_group(group, request, coordinators.offsets_in)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commit offsets for a group without members. UnknownMemberId when it has members."""
        if offsets:
            self._at_group(group, coordinators.offset_commit(group, offsets), coordinators.check_partitions)

    def delete_group(self, group: str) -> None:
        """Delete a group without members, with its offsets."""
        self._at_group(group, groups.delete_group(group), groups.check_deleted)

    def delete_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> None:
        """Delete the offsets of partitions of a topic that no member of the group reads."""
        self._at_group(group, groups.delete_offsets(group, topic, partitions), groups.check_offsets_deleted)

    def remove_member(self, group: str, member_id: str, reason: str) -> None:
        """Remove a member from a group. A consumer that still runs joins again."""
        self._at_group(group, groups.remove_member(group, member_id, reason), groups.check_removed)

    def _at_group(self, group: str, request: Request, read: Callable[[Answer], R]) -> R:
        return self._router.at_coordinator(f"group {group}", Coordinated.GROUP, group, request, read)

    # Producers and transactions

    def init_producer(
        self, transactional_id: str | None = None, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> ProducerIdentity:
        """A producer id. A transactional id fences the previous producer and aborts its open transaction."""
        request = coordinators.init_producer_id(transactional_id, timeout_ms)

        def read(answer: Answer) -> ProducerIdentity:
            return coordinators.identity_in(answer, transactional_id)

        if transactional_id is None:
            return self._router.persist("init producer", lambda: read(self._router.anyone().call(request)))
        return self._at_transaction(transactional_id, request, read)

    def add_partitions(self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction, before it writes to them."""
        request = coordinators.add_partitions(producer, list(partitions))
        self._at_transaction(_id_of(producer), request, coordinators.check_added)

    def commit_offsets_in(
        self, producer: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, GroupOffset]
    ) -> None:
        """Commit offsets of a group with the transaction: they take effect only when it commits."""
        request = coordinators.add_offsets(producer, group)
        self._at_transaction(_id_of(producer), request, coordinators.check_answer)
        self._at_group(group, coordinators.txn_offset_commit(producer, group, offsets), coordinators.check_partitions)

    def end_transaction(self, producer: ProducerIdentity, *, commit: bool) -> None:
        """Commit or abort the transaction."""
        request = coordinators.end_txn(producer, commit=commit)
        self._at_transaction(_id_of(producer), request, coordinators.check_answer)

    def open_transactions(self, prefix: str) -> set[str]:
        """The transactional ids with this prefix whose transactions are open.

        Brokers list them from Kafka 3.0 on. Older brokers, and brokers that do not answer, contribute nothing.
        """

        def ask() -> set[str]:
            asked: list[PendingRequest] = []
            for connection in self._router.everyone():
                with suppress(NotServed):
                    asked.append(PendingRequest(connection, connection.ask(coordinators.list_open())))
            found = [coordinators.open_in(connection.answer(number)) for connection, number in asked]
            return {name for names in found for name in names if name.startswith(prefix)}

        return self._router.persist("list transactions", ask)

    def _at_transaction(self, key: str, request: Request, read: Callable[[Answer], R]) -> R:
        return self._router.at_coordinator(f"transaction {key}", Coordinated.TRANSACTION, key, request, read)


def _id_of(producer: ProducerIdentity) -> str:
    if producer.transactional_id is None:
        raise InvalidClientOption("the producer has no transactional id; call init_producer(transactional_id)")
    return producer.transactional_id


def _by_topic(wanted: Mapping[TopicPartition, int]) -> dict[str, list[tuple[int, int]]]:
    topics: dict[str, list[tuple[int, int]]] = {}
    for partition, timestamp in wanted.items():
        topics.setdefault(partition.topic, []).append((partition.partition, timestamp))
    return topics


def _found_sizes(answer: Answer) -> dict[TopicPartition, int | KafkaError]:
    found: dict[TopicPartition, int | KafkaError] = {}
    for directory in answer.message().results:
        for topic in directory.topics:
            for part in topic.partitions:
                found[TopicPartition(topic.name, part.partition_index)] = part.partition_size
    return found


def _found_offsets(answer: Answer) -> dict[TopicPartition, ListedOffset | KafkaError]:
    found: dict[TopicPartition, ListedOffset | KafkaError] = {}
    for topic in answer.message().topics:
        for part in topic.partitions:
            found[TopicPartition(topic.name, part.partition_index)] = (
                of_code(part.error_code)
                if part.error_code
                else ListedOffset(part.offset, part.timestamp, getattr(part, "leader_epoch", -1))
            )
    return found
