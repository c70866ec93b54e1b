"""A group over two brokers that share ClickHouse, with requests made by hand: leaders, notifications and fencing.

Each member asks a different broker for the group's coordinator. Then the coordinator is killed, and the other broker
continues the same generation from the rows. The brokers and servers are those of `test_clickhouse_failover.py`, which
runs the test.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient
from tests.support.clickhouse import Server
from tests.support.cluster_processes import Brokers
from tests.support.kafka_server import RawClient, request_part
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient as Clients
from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    IllegalGeneration,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)

GROUP = "shared"
WAIT_S = 60.0
COMMIT, JOIN, BEAT, LEAVE, SYNC = 8, 11, 12, 13, 14
SESSION = timedelta(seconds=30)
SHORT = timedelta(seconds=1)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
NOT_YET = {CoordinatorNotAvailable.code, NotCoordinator.code, CoordinatorLoadInProgress.code}


class Shared(Protocol):
    """Two brokers over the same servers."""

    brokers: Brokers
    servers: list[Server]


class World:
    def __init__(self, shared: Shared) -> None:
        self.server = shared.servers[0]
        self.brokers = shared.brokers

    def coordinator(self, asked: int) -> int:
        """The number of the group's coordinator, according to the asked broker."""
        with Clients({"bootstrap.servers": self.brokers.address(asked)}) as client:
            found = client.find_coordinator(GROUP)
        return next(number for number in (1, 2) if self.brokers.address(number) == str(found))

    def is_balanced(self) -> bool:
        """Whether each broker leads its share. Before that the controller moves partitions, and coordinators with them.

        A test before this one has paused a broker, and the topic of this one is new.
        """
        topics = AdminClient({"bootstrap.servers": self.brokers.bootstrap}).list_topics(timeout=WAIT_S).topics.values()
        leads = Counter({1: 0, 2: 0})
        leads.update(each.leader for topic in topics for each in topic.partitions.values())
        return set(leads) == {1, 2} and abs(leads[1] - leads[2]) <= 1

    def earliest(self) -> str:
        """The member that joined first, according to the tables."""
        return self.server.ask(f"SELECT argMin(member_id, join_time) FROM group_members WHERE group_id = '{GROUP}'")

    def reported(self, columns: str, member: str) -> str:
        return self.server.ask(f"SELECT {columns} FROM group_members WHERE member_id = '{member}'")


class Member:
    """A client that sends only what the test asks for, and again while the coordinator moves, as every client does."""

    def __init__(self, client: RawClient, find: Callable[[], Awaitable[RawClient]]) -> None:
        self.client = client
        self._find = find
        self.id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[str] = []

    async def _ask(self, key: int, version: int, code: Callable[[Any], int], **fields: Any) -> Any:
        """The answer of the coordinator. A busy broker may lose its session, so that another one coordinates."""
        end = time.monotonic() + WAIT_S
        while code(answer := await self.client.ask(key, version, **fields)) in NOT_YET:
            assert time.monotonic() < end, f"no coordinator answers: error {code(answer)}"
            await asyncio.sleep(0.1)
            self.client = await self._find()
        return answer

    async def join(self, session: timedelta = SESSION) -> None:
        protocol = request_part(JOIN, 7, "JoinGroupRequestProtocol", name="range", metadata=SUBSCRIPTION)
        while True:
            joined = await self._ask(
                JOIN,
                7,
                _error_code,
                group_id=GROUP,
                session_timeout=session,
                rebalance_timeout=SESSION,
                member_id=self.id,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            self.id, self.generation, self.leader = joined.member_id, joined.generation_id, joined.leader
            if joined.error_code != MemberIdRequired.code:
                assert joined.error_code == 0
                self.members = [each.member_id for each in joined.members]
                return

    async def sync(self) -> None:
        shares = tuple(
            request_part(SYNC, 4, "SyncGroupRequestAssignment", member_id=each, assignment=b"") for each in self.members
        )
        fields = {"group_id": GROUP, "generation_id": self.generation, "member_id": self.id}
        assert (await self._ask(SYNC, 4, _error_code, **fields, assignments=shares)).error_code == 0

    async def beat(self, client: RawClient | None = None) -> int:
        fields: dict[str, Any] = {"group_id": GROUP, "generation_id": self.generation, "member_id": self.id}
        asked = self._ask(BEAT, 3, _error_code, **fields) if client is None else client.ask(BEAT, 3, **fields)
        return _error_code(await asked)

    async def commit(self, offset: int, generation: int | None = None, client: RawClient | None = None) -> int:
        place = request_part(COMMIT, 7, "OffsetCommitRequestPartition", partition_index=0, committed_offset=offset)
        topic = request_part(COMMIT, 7, "OffsetCommitRequestTopic", name="t", partitions=(place,))
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.id,
            "generation_id_or_member_epoch": self.generation if generation is None else generation,
            "topics": (topic,),
        }
        if client is not None:
            return _commit_code(await client.ask(COMMIT, 7, **fields))
        return _commit_code(await self._ask(COMMIT, 7, _commit_code, **fields))

    async def leave(self) -> None:
        identity = request_part(LEAVE, 4, "MemberIdentity", member_id=self.id, group_instance_id=None)
        answer = await self._ask(LEAVE, 4, _error_code, group_id=GROUP, members=(identity,))
        assert [each.error_code for each in answer.members] == [0]


def _error_code(answer: Any) -> int:
    return int(answer.error_code)


def _commit_code(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


async def connect(world: World, number: int, connections: AsyncExitStack) -> RawClient:
    host, port = world.brokers.address(number).split(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    connections.push_async_callback(client.close)
    return client


async def until_reported(member: Member, code: int) -> None:
    end = time.monotonic() + 60
    while (found := await member.beat()) != code:
        assert found == 0
        assert time.monotonic() < end, f"error {code} is not reported by a heartbeat"
        await asyncio.sleep(0.05)


def run_a_group_over_two_brokers_and_a_kill(shared: Shared) -> None:
    world = World(shared)
    with Clients({"bootstrap.servers": world.brokers.bootstrap}) as client:
        client.metadata(["t"], create=True)
    eventually(lambda: world.coordinator(1) == world.coordinator(2), "both brokers name the same coordinator")
    eventually(world.is_balanced, "each broker leads its share")
    first_number = world.coordinator(1)
    other_number = 3 - first_number

    async def test() -> None:
        async with AsyncExitStack() as connections:
            await run(connections)

    async def run(connections: AsyncExitStack) -> None:
        elsewhere = await connect(world, other_number, connections)

        async def coordinator() -> RawClient:
            number = await asyncio.to_thread(world.coordinator, other_number)  # the one that is not killed
            return await connect(world, number, connections)

        first, second = [Member(await coordinator(), coordinator) for _ in range(2)]
        await first.join()
        await first.sync()
        assert (first.leader, first.members) == (first.id, [first.id])
        joining = asyncio.create_task(second.join())
        await until_reported(first, RebalanceInProgress.code)  # the leader learns of the join by its heartbeat
        old = first.generation
        await first.join()
        await joining
        assert first.leader == second.leader == first.id, "who joined earliest leads"
        assert first.generation == second.generation == old + 1
        assert set(first.members) == {first.id, second.id}
        await asyncio.gather(first.sync(), second.sync())
        assert await second.commit(7) == 0
        assert await second.commit(3, generation=old) == IllegalGeneration.code
        assert await second.commit(3, generation=old, client=elsewhere) == NotCoordinator.code
        rows = "count() < 8, max(generation_id), argMax(state, heartbeat_time), uniqExact(join_time)"
        eventually(
            lambda: world.reported(rows, second.id) == f"1\t{second.generation}\tStable\t1", "the tables have it"
        )
        eventually(lambda: world.earliest() == first.id, "whose join is the earliest in the tables leads")
        for _ in range(200):
            assert await first.beat() == 0
        assert int(world.reported("count()", first.id)) < 20, "heartbeats are not an insert each"

        await goes_on_elsewhere(first, second, connections)

    async def goes_on_elsewhere(first: Member, second: Member, connections: AsyncExitStack) -> None:
        generation = first.generation
        world.brokers.kill(first_number)
        written = int(world.reported("count()", first.id))
        eventually(lambda: world.coordinator(other_number) == other_number, "the other broker coordinates")
        client = await connect(world, other_number, connections)
        end = time.monotonic() + WAIT_S
        while (code := await first.beat(client)) in NOT_YET:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        assert code == 0, "the member is known, in the same generation"
        eventually(lambda: int(world.reported("count()", first.id)) > written, "the next coordinator writes the group")
        assert world.reported("uniqExact(join_time)", first.id) == "1", "when a member joined does not change"
        assert world.earliest() == first.id
        first.client = second.client = client
        assert await second.commit(3, generation=generation - 1) == IllegalGeneration.code
        assert await second.commit(8) == 0
        await first.leave()
        await until_reported(second, RebalanceInProgress.code)  # the member learns of the leave by its heartbeat
        await second.join(SHORT)
        await second.sync()
        assert second.leader == second.id, "the next earliest leads"
        assert (second.members, second.generation) == ([second.id], generation + 1)
        assert await first.beat() == UnknownMemberId.code
        eventually(
            lambda: world.reported("argMax(state, heartbeat_time)", second.id) == "Gone",
            "it is silent, and reported so",
        )
        assert await second.commit(9) == UnknownMemberId.code

    asyncio.run(asyncio.wait_for(test(), 120))
    active = f"SELECT members FROM group_activity WHERE group_id = '{GROUP}'"
    eventually(lambda: world.server.ask(active) == "0", "no member is active")
    committed = f"SELECT committed_offset FROM consumer_lag WHERE group_id = '{GROUP}'"
    eventually(lambda: world.server.ask(committed) == "8", "what a member had committed stays")
