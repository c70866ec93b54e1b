"""Coordination on a real etcd whose members are killed, paused and compacted."""

import asyncio
import time

import pytest
from aetcd import rpc
from tests.support.etcd import Etcd, running_etcd

from tidemill.cluster.etcd import EtcdCoordination, parse
from tidemill.cluster.interface import Changed, CoordinationAway, CoordinationSession, WatchGap
from tidemill.model.errors import InvalidConfig

WAIT_S = 60


def over(session: CoordinationSession) -> bool:
    return not session.alive


async def test_a_watch_survives_the_death_of_etcds_leader() -> None:
    async def scenario(etcd: Etcd) -> None:
        store = EtcdCoordination(etcd.new_folder(), answer_s=20)
        revision = await store.compare_and_put("key0", b"0", 0)
        assert revision is not None
        changes = store.watch("", revision)
        reported: list[Changed] = []

        async def listen() -> None:
            async for change in changes:
                reported.append(change)
                if len(reported) == 40:
                    return

        listening = asyncio.create_task(listen())
        victim = None
        for number in range(1, 41):
            if number == 10:
                victim = etcd.leader()
                victim.kill()
            assert await store.compare_and_put(f"key{number}", b"%d" % number, 0) is not None
        assert victim is not None
        await listening
        assert [change.key for change in reported] == [f"key{number}" for number in range(1, 41)]
        assert [change.revision for change in reported] == sorted({change.revision for change in reported})
        await store.close()

    with running_etcd(members=3) as etcd:
        await asyncio.wait_for(scenario(etcd), WAIT_S)


async def test_history_that_etcd_forgot_is_a_gap() -> None:
    async def scenario(etcd: Etcd) -> None:
        url = etcd.new_folder()
        store = EtcdCoordination(url)
        first = await store.compare_and_put("a", b"1", 0)
        assert first is not None
        second = await store.compare_and_put("a", b"2", first)
        assert second is not None
        await store.compare_and_put("a", b"3", second)
        channel = rpc.insecure_channel(parse(url).members[0])
        await rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=second, physical=True))
        await channel.close()
        with pytest.raises(WatchGap):
            await anext(store.watch("", first - 1))
        await store.close()

    async def session_ends_here_first(etcd: Etcd) -> None:
        ttl_ms = 3_000
        store = EtcdCoordination(etcd.new_folder(), answer_s=10)
        async with store.session(ttl_ms) as session:
            assert await store.compare_and_put("brokers/1", b"here", 0, session=session) is not None
            await asyncio.sleep(ttl_ms / 1000 / 2)
            assert session.alive
            etcd.members[0].pause()
            paused = time.monotonic()
            await session.ended()
            assert over(session)
            assert time.monotonic() - paused < ttl_ms / 1000
            etcd.members[0].resume()
            # A session that has ended stays ended, although etcd may have kept the key.
            await store.get("brokers/1")
            assert over(session)
        await store.close()

    with running_etcd() as etcd:
        await asyncio.wait_for(scenario(etcd), WAIT_S)
        await asyncio.wait_for(session_ends_here_first(etcd), WAIT_S)


async def test_an_etcd_that_is_not_there() -> None:
    store = EtcdCoordination("etcd://127.0.0.1:1", answer_s=0.5)
    with pytest.raises(CoordinationAway, match=r"etcd at 127\.0\.0\.1:1 did not answer"):
        await store.get("a")
    with pytest.raises(CoordinationAway):
        await store.compare_and_put("a", b"", 0)
    await store.close()


@pytest.mark.parametrize(
    ("url", "members", "prefix"),
    [
        ("etcd://a", ("a:2379",), "/tidemill/"),
        ("etcd://a:1,b,c:3/prod/", ("a:1", "b:2379", "c:3"), "/prod/"),
        ("etcd://[::1]:9,[::2]", ("[::1]:9", "[::2]:2379"), "/tidemill/"),
    ],
)
def test_urls(url: str, members: tuple[str, ...], prefix: str) -> None:
    assert parse(url)[:2] == (members, prefix)


@pytest.mark.parametrize(
    "url", ["etcd:", "etcd://", "etcd://a:x", "etcd://a:0", "etcd://a,,b", "local:", "etcd://u:p@"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InvalidConfig, match="etcd"):
        parse(url)
