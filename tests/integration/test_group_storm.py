"""Members join and leave at the same time: no live member ever gets UNKNOWN_MEMBER_ID.

Each member does what clients do: it joins, syncs, sends heartbeats and commits, joins again when it hears of a
rebalance, and leaves after a while to return as a new member. Errors of a rebalance that overtakes it are allowed;
UNKNOWN_MEMBER_ID is not, because no member is late.
"""

import asyncio
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import RawClient, request_part, running_kafka_server

from tidemill.model.errors import IllegalGeneration, MemberIdRequired, RebalanceInProgress
from tidemill.servers.kafka.listener import KafkaServer

pytestmark = pytest.mark.event_loop("uvloop")

COMMIT, JOIN, BEAT, LEAVE, SYNC = 8, 11, 12, 13, 14
GROUP = "storm"
MEMBERS = 10
LIVES = 4
BEATS_MAX = 12
PATIENCE = timedelta(seconds=100)
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
OVERTAKEN = {RebalanceInProgress.code, IllegalGeneration.code}


class Member:
    """One client of the group."""

    def __init__(self, client: RawClient, rng: random.Random, reported: Counter[tuple[int, int]]) -> None:
        self._client = client
        self._rng = rng
        self._reported = reported
        self._id = ""
        self._generation = -1
        self._members: list[str] = []

    async def live(self) -> None:
        """Join, work, leave."""
        self._id = ""
        beats = self._rng.randrange(1, BEATS_MAX)
        while beats > 0:
            await self._join()
            if await self._sync():
                continue
            while beats > 0 and not await self._beat():
                beats -= 1
                await asyncio.sleep(self._rng.random() * 0.01)
        identity = request_part(LEAVE, 4, "MemberIdentity", member_id=self._id, group_instance_id=None)
        answer = await self._ask(LEAVE, 4, group_id=GROUP, members=(identity,))
        assert [each.error_code for each in answer.members] == [0]

    async def _join(self) -> None:
        protocol = request_part(JOIN, 7, "JoinGroupRequestProtocol", name="range", metadata=SUBSCRIPTION)
        while True:
            joined = await self._ask(
                JOIN,
                7,
                group_id=GROUP,
                session_timeout=PATIENCE,
                rebalance_timeout=PATIENCE,
                member_id=self._id,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            self._id, self._generation = joined.member_id, joined.generation_id
            if joined.error_code != MemberIdRequired.code:
                assert joined.error_code == 0
                self._members = [each.member_id for each in joined.members]
                return

    async def _sync(self) -> bool:
        """Whether the group has gone on meanwhile."""
        shares = tuple(
            request_part(SYNC, 4, "SyncGroupRequestAssignment", member_id=each, assignment=b"all")
            for each in self._members
        )
        answer = await self._ask(
            SYNC, 4, group_id=GROUP, generation_id=self._generation, member_id=self._id, assignments=shares
        )
        assert answer.error_code in {0} | OVERTAKEN
        return bool(answer.error_code)

    async def _beat(self) -> bool:
        """A heartbeat and a commit; whether a rebalance is under way."""
        place = request_part(COMMIT, 7, "OffsetCommitRequestPartition", partition_index=0, committed_offset=1)
        topic = request_part(COMMIT, 7, "OffsetCommitRequestTopic", name="t", partitions=(place,))
        mine = {"group_id": GROUP, "member_id": self._id}
        committed = await self._ask(COMMIT, 7, **mine, generation_id_or_member_epoch=self._generation, topics=(topic,))
        assert committed.topics[0].partitions[0].error_code in {0} | OVERTAKEN
        alive = await self._ask(BEAT, 3, **mine, generation_id=self._generation)
        assert alive.error_code in {0} | OVERTAKEN
        return bool(alive.error_code)

    async def _ask(self, key: int, version: int, **fields: Any) -> Any:
        answer = await self._client.ask(key, version, **fields)
        self._reported[key, getattr(answer, "error_code", 0)] += 1
        return answer


async def storm(server: KafkaServer, seed: int) -> Counter[tuple[int, int]]:
    """How often each API returned each error."""
    reported: Counter[tuple[int, int]] = Counter()

    async def one(number: int) -> None:
        client = await RawClient.connect(server)
        member = Member(client, random.Random(seed + number), reported)
        for _ in range(LIVES):
            await member.live()
        await client.close()

    async with asyncio.TaskGroup() as group:
        for number in range(MEMBERS):
            group.create_task(one(number))
    return reported


async def test_no_live_member_is_unknown(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")

    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create("t")
        reported = await storm(server, seed)
        print(reported)
        assert reported[BEAT, RebalanceInProgress.code] > 0, "the members have met"
        assert reported[LEAVE, 0] == MEMBERS * LIVES
        (group_id,) = server.broker.groups.group_ids()
        listed = server.broker.groups.listed(group_id)
        assert listed is not None
        assert listed.state.lower() == "empty"
