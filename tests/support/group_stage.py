"""A test harness for the core of groups: one shard, an in-memory journal and a manual clock.

The journal can fail or be replayed. Members have short names. The harness remembers the last response of each (id,
generation, epoch, partitions), as a client would, and sends these values in later requests.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from tidemill.groups.core import classic_membership, consumer_heartbeat, protocol_migration
from tidemill.groups.core.catalog import TopicCatalog, TopicShape
from tidemill.groups.core.classic_group import NEVER_MS, ClassicGroup
from tidemill.groups.core.consumer_group import ConsumerGroup
from tidemill.groups.core.consumer_heartbeat import HeartbeatAnswer, HeartbeatRequest
from tidemill.groups.core.entries import Partitions
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.messages import (
    Answer,
    GroupStep,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Left,
    SyncAnswer,
    SyncRequest,
)
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.groups.core.records import decode, encode
from tidemill.groups.core.shard import Shard
from tidemill.groups.core.subscriptions import write_subscription
from tidemill.model.errors import KafkaStorageError
from tidemill.model.topics import TopicPartition

LIMITS = GroupLimits(initial_rebalance_delay_ms=0)


@dataclass
class Client:
    """The state that a member knows of itself."""

    name: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    epoch: int = 0
    owned: Partitions = frozenset()
    assignment: bytes = b""
    leads: bool = False
    options: dict[str, object] = field(default_factory=dict)


class Stage:
    """One shard and its journal."""

    def __init__(self, limits: GroupLimits = LIMITS) -> None:
        self.limits = limits
        self.now_ms = 1_000
        self.shard = Shard(limits)
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.refuses = False
        self.answers: list[tuple[str, Answer]] = []
        self.clients: dict[str, Client] = {}
        self.ids = 0
        self.topics: dict[str, TopicShape] = {}
        self.catalog = TopicCatalog(0)

    # -- time and the journal

    def perform(self, group_id: str, decide: Callable[[int], GroupStep]) -> None:
        """Do what the coordinator does: decide, make durable, replay, answer."""
        step = decide(self.now_ms)
        group = self.shard.groups.get(group_id)
        outbox = group.outbox if group is not None else []
        if step.entries:
            if self.refuses:
                outbox.clear()
                raise KafkaStorageError
            for entry in step.entries:
                encoded = encode(entry)
                self.journal.append(encoded)
                assert decode(*encoded) == entry
                self.shard.replay(entry)
        if step.then is not None:
            step.then()
        for ticket, answer in outbox:
            self._deliver(str(ticket), answer)
        outbox.clear()

    def _deliver(self, name: str, answer: Answer) -> None:
        self.answers.append((name, answer))
        client = self.clients[name]
        if isinstance(answer, JoinAnswer):
            client.member_id = answer.member_id
            client.generation = answer.generation
            client.leads = answer.leader == answer.member_id
        elif isinstance(answer, SyncAnswer):
            client.assignment = answer.assignment

    def reported(self) -> list[tuple[str, Answer]]:
        """The answers since the last call."""
        answers, self.answers = self.answers, []
        return answers

    def wait(self, milliseconds: int) -> None:
        """Advance the clock. Every deadline on the way fires at its time."""
        until_ms = self.now_ms + milliseconds
        while True:
            due = min(((group.wake_ms, name) for name, group in self.shard.groups.items()), default=(NEVER_MS, ""))
            if due[0] > until_ms:
                break
            self.now_ms = max(self.now_ms, due[0])
            self.perform(due[1], self.shard.groups[due[1]].tick)
            self.downgrade(due[1])
            self.shard.drop_unused(due[1])
        self.now_ms = until_ms

    def crash(self) -> None:
        """Lose everything except the journal."""
        self.shard = Shard(self.limits)
        for key, value in self.journal:
            entry = decode(key, value)
            assert entry is not None
            self.shard.replay(entry)
        self.shard.loaded(self.now_ms)

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # -- classic groups

    def join(
        self,
        group_id: str,
        name: str,
        *,
        protocols: str = "range",
        topics: str = "t",
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        protocol_type: str = "consumer",
        owned: Iterable[TopicPartition] = (),
    ) -> None:
        client = self.client(name)
        client.instance_id = instance or client.instance_id
        request = JoinRequest(
            group_id,
            client.member_id,
            client.instance_id,
            name,
            "/1.2.3.4",
            session_ms,
            rebalance_ms,
            protocol_type,
            tuple((each, write_subscription(topics.split(","), owned)) for each in protocols.split(",") if each),
            takes_member_id_first=version >= 4,
            skips_assignment=version >= 9,
        )
        self.ids += 1
        new_id = f"{name}-{self.ids}"
        self.perform(group_id, lambda now: self.shard.convert_kind(group_id, self.catalog, now, for_consumers=False))

        def decide(now_ms: int) -> GroupStep:
            group = self.shard.groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                return classic_membership.join(self.shard.classic(group_id, now_ms), request, name, new_id, now_ms)
            step, answer = protocol_migration.join(group, request, new_id, self.catalog, now_ms)
            group.outbox.append((name, answer))
            return step

        try:
            self.perform(group_id, decide)
        finally:
            self.shard.drop_unused(group_id)

    def enter(self, group_id: str, name: str, **options: object) -> None:
        """Join like a newer client: get an id first."""
        self.join(group_id, name, **options)  # type: ignore[arg-type]  # the options are join's own
        if self.client(name).generation == -1 and self.client(name).member_id and self.client(name).instance_id is None:
            self.join(group_id, name, **options)  # type: ignore[arg-type]  # the options are join's own

    def sync(self, group_id: str, name: str, assignments: dict[str, bytes] | None = None, **changes: object) -> None:
        client = self.client(name)
        named = {self.client(who).member_id: blob for who, blob in (assignments or {}).items()}
        request = SyncRequest(
            group_id, client.generation, client.member_id, client.instance_id, assignments=named
        )._replace(**changes)  # type: ignore[arg-type]  # fields of the request

        def decide(now_ms: int) -> GroupStep:
            group = self.shard.groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                return classic_membership.sync(self.shard.known_classic(group_id), request, name, now_ms)
            group.outbox.append((name, protocol_migration.sync(group, request, self.catalog, now_ms)))
            return GroupStep()

        self.perform(group_id, decide)

    def beat(self, group_id: str, name: str) -> None:
        client, group = self.client(name), self.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            protocol_migration.beat(group, client.member_id, client.instance_id, client.generation, self.now_ms)
        else:
            group = self.shard.known_classic(group_id)
            group.heartbeat(client.member_id, client.instance_id, client.generation, self.now_ms)

    def leave(self, group_id: str, *leavers: Leaver) -> list[Left]:
        results: list[Left] = []

        def decide(now_ms: int) -> GroupStep:
            group = self.shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                step, left = consumer_heartbeat.remove(group, leavers)
            else:
                step, left = classic_membership.leave(self.shard.known_classic(group_id), leavers, now_ms)
            results.extend(left)
            return step

        self.perform(group_id, decide)
        self.downgrade(group_id)
        return results

    def downgrade(self, group_id: str) -> None:
        self.perform(group_id, lambda now: self.shard.downgrade(group_id, self.catalog, now))

    def leaver(self, name: str) -> Leaver:
        client = self.client(name)
        return Leaver(client.member_id, client.instance_id)

    def group(self, group_id: str) -> ClassicGroup:
        return self.shard.known_classic(group_id)

    # -- offsets

    def commit(self, group_id: str, name: str | None, offset: int, topic: str = "t", partition: int = 0) -> None:
        client = self.client(name) if name is not None else Client("")
        generation = client.generation if client.generation >= 0 else client.epoch or -1
        self.shard.check_commit(group_id, generation, client.member_id, client.instance_id)
        commits = [OffsetCommit(topic, partition, offset)]
        self.perform(group_id, lambda now: GroupStep(self.shard.offsets.commit(group_id, commits, now)))

    def committed(self, group_id: str, topic: str = "t", partition: int = 0) -> int:
        return self.shard.fetch(group_id, [TopicPartition(topic, partition)], stable=False)[0].offset

    # -- consumer groups

    def make_topic(self, name: str, partitions: int) -> None:
        known = self.topics.get(name)
        topic_id = known.topic_id if known else UUID(int=self.catalog.version + 1)
        self.topics[name] = TopicShape(name, topic_id, partitions)
        self.catalog = TopicCatalog(self.catalog.version + 1, self.topics.values())

    def drop_topic(self, name: str) -> None:
        del self.topics[name]
        self.catalog = TopicCatalog(self.catalog.version + 1, self.topics.values())

    def pulse(self, group_id: str, name: str, **changes: object) -> HeartbeatAnswer:
        """One heartbeat of a consumer group's member. It owns assigned partitions at once."""
        client = self.client(name)
        client.member_id = client.member_id or f"{name}-member"
        request = HeartbeatRequest(
            group_id, client.member_id, client.epoch, name, "/1.2.3.4", instance_id=client.instance_id
        )
        if client.epoch == 0:
            request = request._replace(rebalance_timeout_ms=30_000, topic_names=("t",), owned=frozenset())
        else:
            request = request._replace(owned=client.owned)
        request = request._replace(**changes)  # type: ignore[arg-type]  # fields of the request
        consumer_heartbeat.check_request(request)
        answers: list[HeartbeatAnswer] = []

        def decide(now_ms: int) -> GroupStep:
            group = self.shard.consumer(group_id)
            if request.member_epoch < 0:
                beat = consumer_heartbeat.leave(group, request, now_ms)
            else:
                beat = consumer_heartbeat.heartbeat(group, request, self.catalog, now_ms)
            answers.append(beat.answer)
            return beat.step

        if request.member_epoch == 0:
            self.perform(group_id, lambda now: self.shard.convert_kind(group_id, self.catalog, now, for_consumers=True))
        try:
            self.perform(group_id, decide)
        finally:
            self.shard.drop_unused(group_id)
        if request.member_epoch < 0:
            self.downgrade(group_id)
        client.instance_id = request.instance_id
        client.epoch = max(answers[0].member_epoch, 0)
        if answers[0].assigned is not None:
            client.owned = answers[0].assigned
        return answers[0]

    def settle(self, group_id: str, names: str) -> None:
        """Send heartbeats of all members until nothing changes."""
        for _ in range(20):
            size = len(self.journal)
            for name in names.split():
                self.pulse(group_id, name)
            if len(self.journal) == size:
                return
        raise AssertionError("the group does not come to rest")

    def indexes(self, name: str) -> list[int]:
        """The partition numbers of a member."""
        return sorted(index for _, index in self.client(name).owned)
