"""Members of a KIP-848 group join and leave at the same time: no partition has two owners, and no member is fenced.

Each member does what clients do: it takes the partitions of its assignment, revokes the others, and reports what it
owns with its next heartbeat. The test records the owners when a member receives a response. It fails when a partition
is assigned to a member while another one still owns it.
"""

import asyncio
import random
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.support.kafka_server import RawClient, request_part, running_kafka_server

from tidemill.model.errors import StaleMemberEpoch

pytestmark = pytest.mark.event_loop("uvloop")

COMMIT, PULSE = 8, 68
GROUP = "storm"
PARTITIONS = 16
MEMBERS = 8
LIVES = 4
BEATS_MAX = 20
SETTLED_BEATS_MAX = 200
PATIENCE = timedelta(seconds=100)
UNCHANGED = timedelta(milliseconds=-1)
JOINING, LEAVING = 0, -1

Owners = dict[int, str]


class Member:
    """One client of the group."""

    def __init__(self, client: RawClient, topic_id: UUID, owners: Owners) -> None:
        self.id = str(uuid4())
        self._client = client
        self._topic_id = topic_id
        self._owners = owners
        self._epoch = JOINING
        self._news = True

    @property
    def share(self) -> set[int]:
        """What it holds."""
        return {index for index, owner in self._owners.items() if owner == self.id}

    async def beat(self) -> None:
        """A heartbeat, with what is held where that has changed; then do what the answer says."""
        held = request_part(PULSE, 1, "TopicPartitions", topic_id=self._topic_id, partitions=tuple(sorted(self.share)))
        joining = self._epoch == JOINING
        answer = await self._client.ask(
            PULSE,
            1,
            group_id=GROUP,
            member_id=self.id,
            member_epoch=self._epoch,
            rebalance_timeout=PATIENCE if joining else UNCHANGED,
            subscribed_topic_names=("t",) if joining else None,
            topic_partitions=() if joining else (held,) if self._news else None,
        )
        assert (answer.error_code, answer.error_message) == (0, None)
        self._epoch, self._news = answer.member_epoch, False
        if answer.assignment is not None:
            self._take({index for entry in answer.assignment.topic_partitions for index in entry.partitions})

    async def commit(self) -> None:
        """Commit what it holds; the epoch may have moved on meanwhile, and that is all that may go wrong."""
        place = [
            request_part(COMMIT, 9, "OffsetCommitRequestPartition", partition_index=index, committed_offset=1)
            for index in self.share
        ]
        topic = request_part(COMMIT, 9, "OffsetCommitRequestTopic", name="t", partitions=tuple(place))
        mine = {"group_id": GROUP, "member_id": self.id, "generation_id_or_member_epoch": self._epoch}
        answer = await self._client.ask(COMMIT, 9, **mine, topics=(topic,))
        assert {part.error_code for part in answer.topics[0].partitions} <= {0, StaleMemberEpoch.code}

    async def leave(self) -> None:
        """Give everything back and go."""
        for index in self.share:
            del self._owners[index]
        answer = await self._client.ask(
            PULSE, 1, group_id=GROUP, member_id=self.id, member_epoch=LEAVING, rebalance_timeout=UNCHANGED,
            subscribed_topic_names=None, topic_partitions=None,
        )  # fmt: skip
        assert answer.error_code == 0

    def _take(self, given: set[int]) -> None:
        for index in self.share - given:
            del self._owners[index]
        for index in given - self.share:
            assert index not in self._owners, f"partition {index} has two owners"
            self._owners[index] = self.id
        self._news = True


async def storm(clients: list[RawClient], topic_id: UUID, seed: int) -> None:
    owners: Owners = {}
    moved = 0

    async def one(client: RawClient, rng: random.Random) -> Member:
        nonlocal moved
        for life in range(LIVES):
            member = Member(client, topic_id, owners)
            for _ in range(rng.randrange(2, BEATS_MAX)):
                before = member.share
                await member.beat()
                moved += before != member.share
                await member.commit()
                await asyncio.sleep(rng.random() * 0.005)
            if life < LIVES - 1:
                await member.leave()
        return member

    members = await asyncio.gather(*(one(each, random.Random(seed + number)) for number, each in enumerate(clients)))
    for _ in range(SETTLED_BEATS_MAX):
        if sorted(len(member.share) for member in members) == [PARTITIONS // MEMBERS] * MEMBERS:
            break
        for member in members:
            await member.beat()
    assert {len(member.share) for member in members} == {PARTITIONS // MEMBERS}, owners
    assert moved > MEMBERS, "partitions went from hand to hand"


async def test_no_partition_has_two_owners(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")

    async with running_kafka_server(tmp_path) as server:
        topic = await server.broker.topics.create("t", partitions=PARTITIONS)
        clients = [await RawClient.connect(server) for _ in range(MEMBERS)]
        try:
            await storm(clients, topic.topic_id, seed)
        finally:
            for client in clients:
                await client.close()
