"""The coordinator: what the doors and the transactions can ask of groups; the cores decide, the engine runs it.

What only reads or only keeps a member alive does not wait. A commit waits for its turn to be judged, then lets the
next one in while it is on its way to the disk: the journal keeps their order, and whatever is decided later is written
later.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tidemill.groups.core import classic_membership, consumer_heartbeat, descriptions, overview, protocol_migration
from tidemill.groups.core.classic_group import ClassicGroup
from tidemill.groups.core.consumer_group import ConsumerGroup
from tidemill.groups.core.consumer_heartbeat import HeartbeatAnswer, HeartbeatRequest
from tidemill.groups.core.descriptions import DescribedConsumerGroup, DescribedGroup
from tidemill.groups.core.messages import (
    GroupStep,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Left,
    SyncAnswer,
    SyncRequest,
)
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.groups.core.overview import Overview
from tidemill.groups.core.shard import FetchedOffset, ListedGroup, Shard
from tidemill.groups.runtime import GroupEngine
from tidemill.groups.writer import ShardWriter
from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    NotCoordinator,
    UnknownMemberId,
)
from tidemill.model.topics import INTERNAL, TopicPartition

LEAVERS_AT_ONCE = 200
"""After so many members of one LeaveGroup, others have the event loop."""


class GroupCoordinator(GroupEngine):
    """All groups of this broker."""

    # -- classic groups -----------------------------------------------------------------------------------------------

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """JoinGroup."""
        shard = self._shard(request.group_id)
        limits = self.limits
        if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
            allowed = f"{limits.session_timeout_min_ms} to {limits.session_timeout_max_ms} ms"
            raise InvalidSessionTimeout(f"a session lasts {allowed}, not {request.session_timeout_ms}")
        if request.member_id and request.group_id not in shard.groups:
            raise UnknownMemberId
        self.check_protocols(len(request.protocols))
        self._check_names(request.instance_id, request.protocol_type, *(name for name, _ in request.protocols))
        new_id = f"{request.instance_id or request.client_id}-{self._new_id()}"
        ticket = self._ticket(request.group_id)

        def decide(now_ms: int) -> GroupStep:
            group = shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                return classic_membership.join(shard.classic(request.group_id, now_ms), request, ticket, new_id, now_ms)
            step, answer = protocol_migration.join(group, request, new_id, self._topics_now(), now_ms)
            group.outbox.append((ticket, answer))
            return step

        async with self._turn(request.group_id):
            await self._make_room(shard, request.group_id, for_consumers=False)
            try:
                await self._perform(shard, request.group_id, decide, size=self._join_size(shard, request.group_id))
            finally:
                shard.drop_unused(request.group_id)
        answer: JoinAnswer = await ticket
        return answer

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """SyncGroup."""
        shard = self._shard(request.group_id)
        ticket = self._ticket(request.group_id)

        def decide(now_ms: int) -> GroupStep:
            group = shard.groups.get(request.group_id)
            if not isinstance(group, ConsumerGroup):
                return classic_membership.sync(shard.known_classic(request.group_id), request, ticket, now_ms)
            group.outbox.append((ticket, protocol_migration.sync(group, request, self._topics_now(), now_ms)))
            return GroupStep()

        async with self._turn(request.group_id):
            await self._perform(shard, request.group_id, decide)
        answer: SyncAnswer = await ticket
        return answer

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        """Heartbeat; nothing is written, so nothing is waited for."""
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            shard.known_classic(group_id).heartbeat(member_id, instance_id, generation, self._clock())
            return
        try:
            protocol_migration.beat(group, member_id, instance_id, generation, self._clock())
        finally:
            self._schedule(shard, group_id)

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[Left]:
        """LeaveGroup; some members at a time, in one turn."""
        shard = self._shard(group_id)
        results: list[Left] = []

        def decide(some: Sequence[Leaver], now_ms: int) -> GroupStep:
            group = shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                step, left = consumer_heartbeat.remove(group, some)
            else:
                step, left = classic_membership.leave(shard.known_classic(group_id), some, now_ms)
            results.extend(left)
            return step

        async with self._turn(group_id):
            for start in range(0, len(leavers), LEAVERS_AT_ONCE):
                await self._perform(shard, group_id, partial(decide, leavers[start : start + LEAVERS_AT_ONCE]))
                await asyncio.sleep(0)
            await self._downgrade(shard, group_id)
        return results

    # -- consumer groups ----------------------------------------------------------------------------------------------

    async def consumer_heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat. A member that comes without an id is given one."""
        joins = request.member_epoch == consumer_heartbeat.JOIN_EPOCH
        if joins and not request.member_id:
            request = request._replace(member_id=self._new_id())
        shard = self._shard(request.group_id)
        consumer_heartbeat.check_request(request)
        names = (*(request.topic_names or ()), request.topic_regex)
        self._check_names(request.member_id, request.instance_id, request.rack_id, *names)
        answers: list[HeartbeatAnswer] = []

        def decide(now_ms: int) -> GroupStep:
            if not joins and not isinstance(shard.groups.get(request.group_id), ConsumerGroup):
                raise UnknownMemberId
            group = shard.consumer(request.group_id)
            if request.member_epoch < 0:
                beat = consumer_heartbeat.leave(group, request, now_ms)
            else:
                beat = consumer_heartbeat.heartbeat(group, request, topics, now_ms)
            answers.append(beat.answer)
            return beat.step

        async with self._turn(request.group_id):
            if joins:
                await self._make_room(shard, request.group_id, for_consumers=True)
            try:
                group = shard.groups.get(request.group_id)
                known = group if isinstance(group, ConsumerGroup) else None
                topics = self._topics_now()
                size = consumer_heartbeat.decision_size(known, request, topics)
                await self._perform(shard, request.group_id, decide, size=size)
            finally:
                shard.drop_unused(request.group_id)
            if request.member_epoch < 0:
                await self._downgrade(shard, request.group_id)
        return answers[0]

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        offsets: Sequence[OffsetCommit],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        names_epochs: bool = True,
    ) -> None:
        """OffsetCommit."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            entries = await self._computed(len(offsets), shard.offsets.commit, group_id, offsets, self._clock())
            shard.check_commit(group_id, generation, member_id, instance_id, names_epochs=names_epochs)
            self._keep_alive(shard, group_id, member_id)
            written = self._submit(group_id, entries)
        await written

    async def commit_transactional(
        self,
        group_id: str,
        *,
        producer_id: int,
        producer_epoch: int,  # noqa: ARG002 - the transaction coordinator has checked it; named to fit its call
        offsets: Sequence[OffsetCommit],
        check: Callable[[], None],
        member_id: str = "",
        generation: int = -1,
        group_instance_id: str | None = None,
    ) -> None:
        """TxnOffsetCommit: the offsets count when the transaction is committed.

        `check` raises when that is not open any more: what is staged behind its end would count for the next one.
        """
        shard = self._shard(group_id)
        async with self._turn(group_id):
            now = self._clock()
            entries = await self._computed(len(offsets), shard.offsets.stage, group_id, producer_id, offsets, now)
            check()
            shard.check_commit(group_id, generation, member_id, group_instance_id, in_transaction=True)
            written = self._submit(group_id, entries)
        await written

    async def end_transaction(
        self,
        *,
        partition: int,
        producer_id: int,
        commit: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply or forget the offsets that the producer has staged here; a repeat finds nothing left to do.

        `check` raises when the transaction's coordinator was replaced: what is staged may be of a later transaction.
        """
        shard, writer = self._shards.get(partition), self._writers.get(partition)
        if shard is None or writer is None:
            raise NotCoordinator
        await writer.settled()  # what is on its way to the journal is staged, too
        check()
        entries = shard.offsets.end_transaction(producer_id, commit=commit)
        if entries:
            await writer.submit(entries)

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedOffset]:
        """OffsetFetch; None asks for all."""
        shard = self._shard(group_id)
        shard.check_fetch(group_id, member_id, member_epoch)
        return shard.fetch(group_id, partitions, stable=stable)

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Every partition that the group has committed an offset of, in order."""
        return sorted(self._shard(group_id).offsets.of_group(group_id))

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """OffsetDelete."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            group = shard.groups.get(group_id)
            size = len(partitions) + (0 if group is None else len(group.members))
            step, results = await self._computed(size, shard.delete_offsets, group_id, partitions)
            await self._perform(shard, group_id, lambda _now: step)
        return results

    async def topic_deleted(self, name: str) -> None:
        """Forget the offsets of a topic that is gone, so that a new one of that name begins at its beginning.

        The journal itself goes when it could not be made: whoever waits for it then must not be waited for.
        """
        if name in INTERNAL:
            return
        await asyncio.gather(
            *(self._forget_topic(shard, self._writers[at], name) for at, shard in self._shards.items())
        )

    async def _forget_topic(self, shard: Shard, writer: ShardWriter, name: str) -> None:
        await writer.settled()  # what is on its way to the journal is forgotten, too
        await writer.submit(shard.offsets.forget_topic(name))

    # -- whole groups -------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups."""
        return descriptions.describe(self._shard(group_id), group_id)

    def describe_consumers(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe."""
        return descriptions.describe_consumers(self._shard(group_id), group_id)

    def group_ids(self) -> list[str]:
        """The groups that ListGroups goes through, a few at a time (`listed`)."""
        if self._closed or self.led is None or len(self._shards) < len(self.led):
            raise CoordinatorLoadInProgress
        return [group_id for shard in self._shards.values() for group_id in shard.group_ids()]

    def listed(self, group_id: str) -> ListedGroup | None:
        """What ListGroups tells of one group; None when it is gone."""
        shard = self._shards.get(self._journal.partition_of(group_id))
        return None if shard is None else shard.listed(group_id)

    def carries(self, group_id: str) -> bool:
        """Whether the group is this broker's."""
        return self._journal.partition_of(group_id) in self._shards

    def overview(self, name_of: overview.NameOf) -> Overview:
        """Every member and every committed offset; `name_of` knows topics by their ids."""
        shards = list(self._shards.values())
        return Overview(
            [member for shard in shards for member in overview.members_of(shard, name_of)],
            [offset for shard in shards for offset in overview.offsets_of(shard)],
        )

    async def delete(self, group_id: str) -> None:
        """DeleteGroups."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            await self._perform(shard, group_id, lambda _now: shard.delete(group_id))

    # -- inside ----------------------------------------------------------------------------------------------------

    def check_protocols(self, count: int) -> None:
        """Refuse a member that offers more protocols than any client does."""
        if count > self.limits.protocols_max:
            raise InvalidRequest(f"{count} protocols; a member offers at most {self.limits.protocols_max}")

    def _join_size(self, shard: Shard, group_id: str) -> int:
        """How much a join goes through in a consumer group, where it may assign anew; a classic group stays small."""
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return 0
        return len(group.members) + group.named_topics + self._topics_now().partitions

    def _check_names(self, *names: str | None) -> None:
        """What a client calls things is written to the journal, whose strings have a limit."""
        if any(name is not None and len(name) > self.limits.name_length_max for name in names):
            raise InvalidRequest(f"a name has at most {self.limits.name_length_max} characters")

    def _keep_alive(self, shard: Shard, group_id: str, member_id: str) -> None:
        """A commit is a sign of life, in classic groups as in Kafka."""
        group = shard.groups.get(group_id)
        if isinstance(group, ClassicGroup) and member_id in group.members:
            group.touch(group.members[member_id], self._clock())

    async def _make_room(self, shard: Shard, group_id: str, *, for_consumers: bool) -> None:
        topics = self._topics_now()
        await self._perform(
            shard, group_id, lambda now_ms: shard.make_room(group_id, topics, now_ms, for_consumers=for_consumers)
        )
