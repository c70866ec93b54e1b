"""Consumer lag of the groups that this broker coordinates, for /metrics and for the console.

The lag of a partition is the number of offsets from the first record that the group has not read to the last stable
offset. Trailing transaction markers, aborted records and holes do not count (`records/unread.py`), and neither do
records of open transactions, which no read_committed consumer can read yet. A group that has read everything has lag 0.

A partition that this broker leads is read here. For the others the broker sends small Fetch requests to their leaders,
because only the coordinator knows the committed offsets. What was found for a committed offset is cached until the
group commits another one. A result is used for a second, so frequent scrapes do not multiply the requests. A page
that shows all groups does not wait for a long refresh: it shows the last result, and the refresh continues. A
refresh is limited in requests and in time. When a leader does not answer, the last known end counts; partitions whose
end was never known are counted in `tidemill_group_lag_unknown_partitions`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

import structlog

from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.loop_turns import LoopTurns
from tidemill.broker.partitions import Partitions
from tidemill.client.kafka.errors import ClientError
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.groups.core.lag import PartitionLag, TopicLag, TopicLags
from tidemill.groups.core.overview import CommittedOffset, GroupSize
from tidemill.model.errors import TidemillError
from tidemill.model.metrics import Gauge, MetricReading
from tidemill.model.topics import TopicPartition
from tidemill.records.unread import UnreadPosition
from tidemill.streams.partition import Partition

FRESH_S = 1.0
"""How long a result is used, in seconds."""
LOOKS_MAX = 2_000
"""The most partitions that are looked into in one refresh. The next refresh continues with the others."""
LEADER_S = 3.0
"""How long one refresh waits for one leader."""
GROUPS_MAX = 20_000
"""The most groups whose state and members are reported."""
SAMPLE_PAUSES = 20
"""After a refresh, the next one that no client waits for begins when this many times its length are over."""
GROUPS_LOOKED_MAX = 100
"""Groups for which the time of the last look of their own is kept."""
DETAIL_ROWS_MAX = 100_000
"""The most rows by partition in one scrape."""

log = structlog.get_logger("tidemill.broker")

Place = tuple[TopicPartition, int]
"""A partition and a committed offset."""


class LeaderReader(Protocol):
    """Reads partitions at other brokers."""

    def next_unread(
        self, node_id: int, wanted: Sequence[Place]
    ) -> AsyncIterator[tuple[Place, tuple[UnreadPosition, int]]]:
        """The first unread record from each offset on, and the last stable offset; nothing for a failed one."""


class LagState(NamedTuple):
    """What one refresh has found."""

    committed: Sequence[CommittedOffset]
    found: Mapping[Place, UnreadPosition]
    ends: Mapping[TopicPartition, int]
    now_ms: int

    def lags(self) -> Iterator[PartitionLag]:
        """The lag of each partition whose end is known."""
        for each in self.committed:
            end = self.ends.get(each.place)
            if end is None:
                continue
            position = self.found.get((each.place, each.offset), UnreadPosition(each.offset))
            records = position.records_to(end)
            yield PartitionLag(each, records, position.age_s(self.now_ms) if records else 0.0)


class KnownLags(NamedTuple):
    """The lag of all groups after one refresh."""

    state: LagState
    by_pair: Mapping[tuple[str, str], TopicLag]
    """By group and topic."""
    unknown: int
    """How many committed partitions have no known end."""
    unknown_groups: frozenset[str]
    """The groups of those partitions."""
    by_group: Mapping[str, TopicLag]
    """The lag of each group in all of its topics."""


NOTHING_KNOWN = KnownLags(LagState((), {}, {}, 0), {}, 0, frozenset(), {})


class GroupLags:
    """Computes the lag of groups on request."""

    def __init__(
        self,
        view: ClusterView,
        partitions: Partitions,
        groups: GroupCoordinator,
        leaders: LeaderReader,
        *,
        node_id: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._view = view
        self._partitions = partitions
        self._groups = groups
        self._leaders = leaders
        self._node_id = node_id
        self._clock_ms = clock_ms
        self._committed: list[CommittedOffset] = []
        self._found: dict[Place, UnreadPosition] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._known = NOTHING_KNOWN
        self._fresh_until = 0.0
        self._sample_from = 0.0
        self._computing = asyncio.Lock()
        self._refreshing: asyncio.Task[KnownLags] | None = None
        """A refresh that clients wait for."""
        self._sampling: asyncio.Task[KnownLags] | None = None
        self._looked_last: Place | None = None
        self._looked_s: dict[str, float] = {}
        """When groups were looked into on their own, newest last."""

    async def snapshot(self, by_partition: bool) -> Iterator[MetricReading]:
        """The metrics, computed in turns."""
        return chain(_of_groups(self._groups.sizes()), _readings(await self.all(), by_partition=by_partition))

    async def all(self, wait_s: float | None = None) -> KnownLags:
        """The lag of all groups. A refresh that takes longer than `wait_s` continues; the last result is returned."""
        loop = asyncio.get_running_loop()
        if self._refreshing is None:
            if loop.time() < self._fresh_until:
                return self._known
            self._refreshing = loop.create_task(self._refreshed())
        running = self._refreshing
        await asyncio.wait({running}, timeout=wait_s)
        return running.result() if running.done() else self._known

    def sample(self) -> Mapping[str, TopicLag]:
        """The last known lag of each group. It starts a refresh for the next sample, a small part of the time."""
        loop = asyncio.get_running_loop()
        is_idle = self._sampling is None or self._sampling.done()
        if is_idle and self._refreshing is None and loop.time() >= self._sample_from:
            self._sampling = loop.create_task(self._compute())
        return self._known.by_group

    async def of_group(self, group_id: str, others: Iterable[TopicPartition] = ()) -> LagState:
        """The lag of one group. The ends of `others`, partitions without a committed offset, are looked up, too."""
        committed = [each for each in self._groups.committed_of(group_id) if self._exists(each.place)]
        places: list[Place] = [(each.place, each.offset) for each in committed]
        places += ((each, 0) for each in others if self._exists(each))
        now_s = asyncio.get_running_loop().time()
        is_fresh = now_s < self._looked_s.get(group_id, -FRESH_S) + FRESH_S
        await self._look([each for each in places if not is_fresh or each not in self._found], LoopTurns())
        self._looked_s.pop(group_id, None)
        self._looked_s[group_id] = now_s
        if len(self._looked_s) > GROUPS_LOOKED_MAX:
            del self._looked_s[next(iter(self._looked_s))]
        return LagState(committed, self._found, self._ends, self._clock_ms())

    async def close(self) -> None:
        """End a refresh that runs."""
        running = [each for each in (self._refreshing, self._sampling) if each is not None]
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _refreshed(self) -> KnownLags:
        try:
            known = await self._compute()
            self._fresh_until = asyncio.get_running_loop().time() + FRESH_S
            return known
        finally:
            self._refreshing = None

    async def _compute(self) -> KnownLags:
        loop = asyncio.get_running_loop()
        async with self._computing:
            began = loop.time()
            await self._refresh(LoopTurns())
            known = LagState(self._committed, self._found, self._ends, self._clock_ms())
            by_topic, places, turns = TopicLags(), 0, LoopTurns()
            for lag in known.lags():
                by_topic.add(lag)
                places += 1
                await turns.pause()
            unknown = len(known.committed) - places
            without = [each.group_id async for each in turns.over(known.committed) if each.place not in known.ends]
            by_group: dict[str, TopicLag] = {}
            async for (group, _), of_topic in turns.over(by_topic.by_pair.items()):
                by_group[group] = of_topic if group not in by_group else by_group[group].plus_topic(of_topic)
            self._known = KnownLags(known, by_topic.by_pair, unknown, frozenset(without), by_group)
            self._sample_from = loop.time() + SAMPLE_PAUSES * (loop.time() - began)
            return self._known

    async def _refresh(self, turns: LoopTurns) -> None:
        committed = turns.over(self._groups.committed_offsets())
        self._committed = [each async for each in committed if self._exists(each.place)]
        wanted: dict[Place, None] = {}
        found: dict[Place, UnreadPosition] = {}
        ends: dict[TopicPartition, int] = {}
        async for each in turns.over(self._committed):
            place = each.place, each.offset
            wanted[place] = None
            if place in self._found:
                found[place] = self._found[place]
            if each.place in self._ends:
                ends[each.place] = self._ends[each.place]
        self._found, self._ends = found, ends
        await self._look(self._in_turn(wanted), turns)

    async def _look(self, wanted: Sequence[Place], turns: LoopTurns) -> None:
        local: list[Place] = []
        remote: dict[int, list[Place]] = {}
        async for place in turns.over(wanted):
            partition = self._partitions.find(*place[0])
            if partition is not None and partition.leads:
                self._ends[place[0]] = partition.last_stable_offset
                if self._may_have_unread(place, partition):
                    local.append(place)
            elif (leader := self._view.leader_of(place[0])) not in (self._node_id, -1):
                remote.setdefault(leader, []).append(place)
        await self._look_here(local[:LOOKS_MAX], turns)
        await asyncio.gather(*(self._ask(node, each[:LOOKS_MAX]) for node, each in remote.items()))

    def _exists(self, place: TopicPartition) -> bool:
        topic = self._view.topic(place.topic)
        return topic is not None and place.partition < len(topic.partitions)

    def _in_turn(self, wanted: Mapping[Place, None]) -> list[Place]:
        """Start after the last one of the refresh before, so that each gets its turn when one refresh is too short."""
        places = list(wanted)
        if self._looked_last is None or self._looked_last not in wanted:
            return places
        start = places.index(self._looked_last) + 1
        return places[start:] + places[:start]

    def _may_have_unread(self, each: Place, partition: Partition) -> bool:
        """Whether a look can change what is known."""
        position = self._found.get(each, UnreadPosition(each[1]))
        is_known = position.timestamp_ms is not None and position.offset >= partition.log_start_offset
        return not is_known and position.offset < partition.last_stable_offset

    async def _look_here(self, wanted: list[Place], turns: LoopTurns) -> None:
        async for each in turns.over(wanted):
            place, offset = each
            partition = self._partitions.find(*place)
            if partition is None:
                continue
            try:
                start = self._found.get(each, UnreadPosition(offset)).offset
                self._found[each] = await partition.reader.next_unread(start)
            except TidemillError as error:
                log.debug("group_lag_unknown", partition=str(place), error=str(error))
            self._looked_last = each

    async def _ask(self, node_id: int, wanted: list[Place]) -> None:
        """Ask the leader, also for partitions whose first unread record is known: their end has moved."""
        starts: dict[Place, list[Place]] = {}
        for place, offset in wanted:
            start = self._found.get((place, offset), UnreadPosition(offset)).offset
            starts.setdefault((place, start), []).append((place, offset))
        try:
            async with asyncio.timeout(LEADER_S):
                async for asked, (position, end) in self._leaders.next_unread(node_id, list(starts)):
                    self._found |= dict.fromkeys(starts[asked], position)
                    self._ends[asked[0]] = end
                    self._looked_last = starts[asked][-1]
        except (ClientError, TidemillError, OSError, TimeoutError) as error:
            log.debug("group_lag_leader_unreachable", leader=node_id, error=str(error))


def _of_groups(sizes: Iterator[GroupSize]) -> Iterator[MetricReading]:
    states = Counter[str]()
    for number, size in enumerate(sizes):
        states[size.state] += 1
        if number >= GROUPS_MAX:
            continue
        label = (("group", size.group_id),)
        yield Gauge("tidemill_group_members", "Members of a group.", size.members, label)
        yield Gauge(
            "tidemill_group_generation",
            "Generation or epoch of a group; a rebalance increases it.",
            size.generation,
            label,
        )
        in_state = (("group", size.group_id), ("state", size.state))
        yield Gauge("tidemill_group_state", "The state of a group; the value is always 1.", 1, in_state)
    for state, count in sorted(states.items()):
        yield Gauge("tidemill_groups", "Groups that this broker coordinates.", count, (("state", state),))


def _readings(found: KnownLags, *, by_partition: bool) -> Iterator[MetricReading]:
    known = found.state
    yield Gauge(
        "tidemill_group_lag_unknown_partitions", "Committed partitions whose end is not known here.", found.unknown
    )
    for (group, topic), lag in found.by_pair.items():
        labels = (("group", group), ("topic", topic))
        yield Gauge("tidemill_group_lag_records", "Records that a group has not read.", lag.records, labels)
        yield Gauge(
            "tidemill_group_lag_records_max",
            "Records that a group has not read in its slowest partition.",
            lag.records_max,
            labels,
        )
        if lag.seconds is not None:
            yield Gauge("tidemill_group_lag_seconds", "Age of the oldest unread record.", lag.seconds, labels)
    if by_partition:
        for each in islice(known.lags(), DETAIL_ROWS_MAX):
            yield from _of_partition(each)


def _of_partition(each: PartitionLag) -> Iterator[MetricReading]:
    place = each.committed.place
    labels = (("group", each.committed.group_id), ("topic", place.topic), ("partition", str(place.partition)))
    yield Gauge(
        "tidemill_group_partition_lag_records",
        "Records of a partition that a group has not read. Only with ?detail=partition.",
        each.records,
        labels,
    )
    yield Gauge(
        "tidemill_group_partition_committed_offset",
        "The committed offset. Only with ?detail=partition.",
        each.committed.offset,
        labels,
    )
    if each.seconds is not None:
        yield Gauge(
            "tidemill_group_partition_lag_seconds",
            "Age of the oldest unread record of a partition. Only with ?detail=partition.",
            each.seconds,
            labels,
        )
