"""The group coordinator: the operations that the servers and the transaction coordinator call on groups.

The modules in `core` make the decisions and the engine (`runtime.py`) runs them.

Requests that only read, or that only keep a member alive, do not wait for the journal. A commit holds the group's turn
only while it is checked. The next commit starts while the first one is on its way to the disk. The journal keeps their
order: a decision that is made later is also written later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias
from uuid import UUID

from tidemill.groups.core import (
    classic_membership,
    consumer_heartbeat,
    descriptions,
    group_details,
    overview,
    protocol_migration,
    share_group,
)
from tidemill.groups.core.catalog import TopicCatalog
from tidemill.groups.core.classic_group import ClassicGroup
from tidemill.groups.core.consumer_group import ConsumerGroup
from tidemill.groups.core.consumer_heartbeat import HeartbeatAnswer, HeartbeatRequest
from tidemill.groups.core.descriptions import DescribedConsumerGroup, DescribedGroup
from tidemill.groups.core.entries import Partitions
from tidemill.groups.core.messages import (
    GroupStep,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Left,
    SyncAnswer,
    SyncRequest,
)
from tidemill.groups.core.offsets import UNKNOWN_COMMITTER, OffsetCommit, OffsetCommitter
from tidemill.groups.core.overview import CommittedOffset, GroupSize, NameOf, Overview
from tidemill.groups.core.shard import FetchedOffset, ListedGroup, Shard
from tidemill.groups.core.share_group import ShareGroup, ShareHeartbeat
from tidemill.groups.runtime import GroupEngine
from tidemill.groups.writer import ShardWriter
from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    NonEmptyGroup,
    NotCoordinator,
    UnknownMemberId,
)
from tidemill.model.topics import INTERNAL, TopicPartition

CreateState: TypeAlias = Callable[[str, Partitions], Awaitable[Partitions]]
"""Creates the share state of partitions of a group, and returns those that have it now."""
LEAVERS_AT_ONCE = 200
"""The event loop gets a turn after this many members of one LeaveGroup."""


class GroupCoordinator(GroupEngine):
    """All groups that this broker coordinates."""

    # -- classic groups -----------------------------------------------------------------------------------------------

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Handle JoinGroup."""
        shard = self._shard(request.group_id)
        limits = self.limits
        if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
            allowed = f"{limits.session_timeout_min_ms} to {limits.session_timeout_max_ms} ms"
            raise InvalidSessionTimeout(f"session timeout is {request.session_timeout_ms} ms; it must be {allowed}")
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
            await self._convert_kind(shard, request.group_id, for_consumers=False)
            try:
                await self._perform(shard, request.group_id, decide, size=self._join_size(shard, request.group_id))
            finally:
                shard.drop_unused(request.group_id)
        answer: JoinAnswer = await ticket
        return answer

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """Handle SyncGroup."""
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
        """Handle Heartbeat. It writes nothing, so it does not wait for the journal."""
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
        """Handle LeaveGroup: remove the members in chunks, within one turn of the group."""
        shard = self._shard(group_id)
        results: list[Left] = []

        def decide(some: Sequence[Leaver], now_ms: int) -> GroupStep:
            group = shard.groups.get(group_id)
            if isinstance(group, ShareGroup):
                raise UnknownMemberId
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
        """Handle ConsumerGroupHeartbeat. A member that joins without an id gets one."""
        joins = request.member_epoch == consumer_heartbeat.JOIN_EPOCH
        if joins and not request.member_id:
            request = request._replace(member_id=self._new_id())
        shard = self._shard(request.group_id)
        consumer_heartbeat.check_request(request)
        names = (*(request.topic_names or ()), request.topic_regex)
        self._check_names(request.member_id, request.instance_id, request.rack_id, *names)
        answers: list[HeartbeatAnswer] = []

        def decide(now_ms: int) -> GroupStep:
            known = shard.groups.get(request.group_id)
            if not joins and (not isinstance(known, ConsumerGroup) or isinstance(known, ShareGroup)):
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
                await self._convert_kind(shard, request.group_id, for_consumers=True)
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

    # -- share groups -------------------------------------------------------------------------------------------------

    async def share_heartbeat(self, request: ShareHeartbeat, create_state: CreateState) -> HeartbeatAnswer:
        """Handle ShareGroupHeartbeat. `create_state` creates the share state of partitions, and returns which exist."""
        request.check()
        shard = self._shard(request.group_id)
        self._check_names(request.member_id, request.rack_id, *(request.topic_names or ()))
        answers: list[HeartbeatAnswer] = []
        async with self._turn(request.group_id):
            joins = request.member_epoch == consumer_heartbeat.JOIN_EPOCH
            group = shard.share(request.group_id) if joins else shard.known_share(request.group_id)
            topics = self._topics_now()

            def decide(now_ms: int) -> GroupStep:
                if request.member_epoch < 0:
                    beat = share_group.leave(group, request, now_ms)
                else:
                    beat = share_group.heartbeat(group, request, topics, now_ms)
                answers.append(beat.answer)
                return beat.step

            try:
                if request.member_epoch >= 0:
                    await self._share(shard, group, topics, request, create_state)
                await self._perform(shard, request.group_id, decide, size=len(group.members) + topics.partitions)
            finally:
                shard.drop_unused(request.group_id)
        return answers[0]

    async def _share(
        self,
        shard: Shard,
        group: ShareGroup,
        topics: TopicCatalog,
        request: ShareHeartbeat,
        create_state: CreateState,
    ) -> None:
        """Create the share state of subscribed partitions that have none, before a member gets them."""
        is_known = request.topic_names is None and group.catalog_version == topics.version
        if is_known and not group.lacks_state:
            return
        missing = group.wanted(topics, request.topic_names or ())
        created = await create_state(request.group_id, missing) if missing else missing
        group.lacks_state = created != missing
        if created:
            await self._perform(shard, request.group_id, lambda _now: group.sharing(group.shared | created))

    def describe_share(self, group_id: str) -> DescribedConsumerGroup:
        """Handle ShareGroupDescribe."""
        return descriptions.describe_share(self._shard(group_id), group_id)

    def shared_partitions(self, group_id: str) -> Partitions:
        """Return the partitions for which a share group has state; GroupIdNotFound for other groups."""
        return self._shard(group_id).known_share(group_id).shared

    def is_share_group(self, group_id: str) -> bool:
        """Whether this is a share group."""
        return isinstance(self._shard(group_id).groups.get(group_id), ShareGroup)

    async def change_share_state(self, group_id: str, change: Callable[[Partitions], Awaitable[Partitions]]) -> None:
        """Change the state of a share group without members; `change` gets and returns the partitions that have one."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            group = shard.known_share(group_id)
            if not group.is_empty:
                raise NonEmptyGroup(f"group {group_id} has members; stop them first")
            after = await change(group.shared)
            if after != group.shared:
                await self._perform(shard, group_id, lambda _now: group.sharing(after))

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
        client: OffsetCommitter = UNKNOWN_COMMITTER,
    ) -> None:
        """Handle OffsetCommit. `client` has the client id and address of the request, for the tables."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            entries = await self._computed(len(offsets), shard.offsets.commit, group_id, offsets, self._clock())
            shard.check_commit(group_id, generation, member_id, instance_id, names_epochs=names_epochs)
            self._keep_alive(shard, group_id, member_id)
            named = client._replace(member_id=member_id, generation=generation)
            committer = overview.committer_among(shard, group_id, named)
            written = self._submit(group_id, entries)
        await written
        shard.offsets.note_committer(entries, committer)
        self.offset_commits += 1

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
        client: OffsetCommitter = UNKNOWN_COMMITTER,
    ) -> None:
        """Handle TxnOffsetCommit: the offsets take effect when the transaction commits.

        `check` raises when the transaction is no longer open. Offsets staged after its end would count for the next
        one.
        """
        shard = self._shard(group_id)
        async with self._turn(group_id):
            now = self._clock()
            entries = await self._computed(len(offsets), shard.offsets.stage, group_id, producer_id, offsets, now)
            check()
            shard.check_commit(group_id, generation, member_id, group_instance_id, in_transaction=True)
            named = client._replace(member_id=member_id, generation=generation)
            committer = overview.committer_among(shard, group_id, named)
            written = self._submit(group_id, entries)
        await written
        shard.offsets.note_committer(entries, committer)
        self.offset_commits += 1

    async def end_transaction(
        self,
        *,
        partition: int,
        producer_id: int,
        commit: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply or discard the offsets that the producer has staged here. Repeating the call has no effect.

        `check` raises when the transaction's coordinator was replaced: the staged offsets may belong to a later
        transaction.
        """
        shard, writer = self._shards.get(partition), self._writers.get(partition)
        if shard is None or writer is None:
            raise NotCoordinator
        await writer.settled()  # entries on their way to the journal are staged, too
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
        """Handle OffsetFetch. None asks for all partitions."""
        shard = self._shard(group_id)
        shard.check_fetch(group_id, member_id, member_epoch)
        return shard.fetch(group_id, partitions, stable=stable)

    def committed_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return every partition for which the group has committed an offset, sorted."""
        return sorted(self._shard(group_id).offsets.of_group(group_id))

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Handle OffsetDelete."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            group = shard.groups.get(group_id)
            size = len(partitions) + (0 if group is None else len(group.members))
            step, results = await self._computed(size, shard.delete_offsets, group_id, partitions)
            await self._perform(shard, group_id, lambda _now: step)
        return results

    async def topic_deleted(self, name: str) -> None:
        """Delete the offsets of a deleted topic, so that a new topic of that name is read from its start.

        The journal topics are skipped: they are deleted only when their creation failed, and waiting for them would not
        end.
        """
        if name in INTERNAL:
            return
        await asyncio.gather(
            *(self._forget_topic(shard, self._writers[at], name) for at, shard in self._shards.items())
        )

    async def _forget_topic(self, shard: Shard, writer: ShardWriter, name: str) -> None:
        await writer.settled()  # offsets on their way to the journal are deleted, too
        await writer.submit(shard.offsets.forget_topic(name))

    # -- whole groups -------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup:
        """Handle DescribeGroups."""
        return descriptions.describe(self._shard(group_id), group_id)

    def describe_consumers(self, group_id: str) -> DescribedConsumerGroup:
        """Handle ConsumerGroupDescribe."""
        return descriptions.describe_consumers(self._shard(group_id), group_id)

    def group_ids(self) -> list[str]:
        """Return the ids that ListGroups iterates over, a few at a time (see `listed`)."""
        return [group_id for shard in self._loaded_shards() for group_id in shard.group_ids()]

    def listed(self, group_id: str) -> ListedGroup | None:
        """Return the entry of one group in ListGroups; None when the group no longer exists."""
        shard = self._shards.get(self._journal.partition_of(group_id))
        return None if shard is None else shard.listed(group_id)

    def carries(self, group_id: str) -> bool:
        """Whether this broker coordinates the group."""
        return self._journal.partition_of(group_id) in self._shards

    def overview(self, name_of: NameOf) -> Overview:
        """Return every group, member and committed offset. `name_of` maps topic ids to names."""
        shards, now_ms = list(self._shards.values()), self._clock()
        return Overview(
            [member for shard in shards for member in overview.members_of(shard, name_of)],
            [offset for shard in shards for offset in overview.offsets_of(shard)],
            [group for shard in shards for group in overview.groups_of(shard, now_ms)],
        )

    def committed_offsets(self) -> Iterator[CommittedOffset]:
        """Yield every committed position of the groups that this broker coordinates; groups may change meanwhile."""
        return (offset for shard in list(self._shards.values()) for offset in overview.committed_of(shard))

    def committed_of(self, group_id: str) -> list[CommittedOffset]:
        """Return the committed positions of one group."""
        return overview.positions_of(self._shard(group_id), group_id)

    def summary(self, group_id: str) -> group_details.GroupSummary | None:
        """Return the line of one group in a list; None when it no longer exists."""
        shard = self._shards.get(self._journal.partition_of(group_id))
        return None if shard is None else group_details.summary_of(shard, group_id)

    def topics_of(self, group_id: str) -> set[str]:
        """Return the topics that a group reads or has read."""
        shard = self._shards.get(self._journal.partition_of(group_id))
        return set() if shard is None else group_details.topics_of(shard, group_id)

    def readers_of(self, topic: str, topic_id: UUID | None = None) -> Iterator[list[str]]:
        """Yield the groups that read or have read a topic, a few at a time; groups may change meanwhile."""
        return (group_details.readers_of(shard, topic, topic_id) for shard in self._loaded_shards())

    def _loaded_shards(self) -> list[Shard]:
        """Return the shards of all groups. CoordinatorLoadInProgress while some are not loaded."""
        if self._closed or self.led is None or len(self._shards) < len(self.led):
            raise CoordinatorLoadInProgress
        return list(self._shards.values())

    def details(self, group_id: str, name_of: NameOf) -> group_details.GroupDetails:
        """Return everything about one group. `name_of` maps topic ids to names."""
        return group_details.details_of(self._shard(group_id), group_id, name_of)

    def sizes(self) -> Iterator[GroupSize]:
        """Yield the state and the number of members of each group; groups may change meanwhile."""
        return (size for shard in list(self._shards.values()) for size in overview.sizes_of(shard))

    async def delete(self, group_id: str) -> None:
        """Handle DeleteGroups."""
        shard = self._shard(group_id)
        async with self._turn(group_id):
            await self._perform(shard, group_id, lambda _now: shard.delete(group_id))

    # -- internals ----------------------------------------------------------------------------------------------------

    def check_protocols(self, count: int) -> None:
        """Reject a member that offers more protocols than any client does."""
        if count > self.limits.protocols_max:
            raise InvalidRequest(
                f"the member offers {count} protocols; at most {self.limits.protocols_max} are allowed"
            )

    def _join_size(self, shard: Shard, group_id: str) -> int:
        """Return how many items a join visits. It may reassign a consumer group; a classic group counts as 0."""
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return 0
        return len(group.members) + group.named_topics + self._topics_now().partitions

    def _check_names(self, *names: str | None) -> None:
        """Reject names that are too long for the journal, whose strings have a size limit."""
        if any(name is not None and len(name) > self.limits.name_length_max for name in names):
            raise InvalidRequest(f"a name is too long; the limit is {self.limits.name_length_max} characters")

    def _keep_alive(self, shard: Shard, group_id: str, member_id: str) -> None:
        """Extend the member's session: a commit counts as a heartbeat in classic groups, as in Kafka."""
        group = shard.groups.get(group_id)
        if isinstance(group, ClassicGroup) and member_id in group.members:
            group.touch(group.members[member_id], self._clock())

    async def _convert_kind(self, shard: Shard, group_id: str, *, for_consumers: bool) -> None:
        topics = self._topics_now()
        await self._perform(
            shard, group_id, lambda now_ms: shard.convert_kind(group_id, topics, now_ms, for_consumers=for_consumers)
        )
