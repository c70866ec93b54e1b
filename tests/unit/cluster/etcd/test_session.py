"""A session on etcd ends by our own clock: a margin before its time, counted from when the last renewal was sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("aetcd")

from tidemill.cluster.etcd.session import EtcdSession

pytestmark = pytest.mark.event_loop("virtual")

TTL_S = 4.0
ANSWER_S = 0.05


class Channels:
    """An etcd that answers until the test stops it."""

    members = ("somewhere:2379",)

    def __init__(self) -> None:
        self.answers = True
        self.forgotten = False
        self.renewals: list[float] = []

    async def call(self, method: Any, request: Any, deadline: float) -> Any:
        await asyncio.sleep(ANSWER_S)
        return SimpleNamespace(ID=7)

    async def once(self, method: Any, request: Any, timeout_s: float) -> Any:
        await asyncio.sleep(ANSWER_S)

    async def current(self, timeout_s: float) -> tuple[str, Any]:
        leases = SimpleNamespace(LeaseKeepAlive=self._keep_alive)
        return "somewhere:2379", SimpleNamespace(leases=leases, login=())

    async def _keep_alive(self, requests: Any, timeout: float, metadata: Any) -> AsyncIterator[Any]:
        sent = asyncio.get_running_loop().time()
        if not self.answers:
            await asyncio.sleep(timeout)
            return
        await asyncio.sleep(ANSWER_S)
        self.renewals.append(sent)
        yield SimpleNamespace(TTL=0 if self.forgotten else int(TTL_S))


def lives(session: EtcdSession) -> bool:
    return session.alive


@asynccontextmanager
async def running_session() -> AsyncIterator[tuple[Channels, EtcdSession, list[float]]]:
    """A session, its connections, and for how long the process was stopped, which only the clock shows."""
    loop, channels, lost = asyncio.get_running_loop(), Channels(), [0.0]
    session = EtcdSession(channels, int(TTL_S * 1000), lambda: loop.time() + lost[0])  # type: ignore[arg-type]
    await session.begin(loop.time() + 1)
    yield channels, session, lost
    await session.end()


async def test_a_renewed_session_stays_alive() -> None:
    async with running_session() as (channels, session, _):
        await asyncio.sleep(10 * TTL_S)
        assert session.alive
        assert len(channels.renewals) > 20


async def test_b18_it_ends_before_etcd_would_end_it() -> None:
    async with running_session() as (channels, session, _):
        await asyncio.sleep(TTL_S)
        channels.answers = False
        await session.ended()
        now, last = asyncio.get_running_loop().time(), channels.renewals[-1]
        assert last + TTL_S / 2 < now <= last + TTL_S * 3 / 4 + ANSWER_S
        channels.answers = True
        await asyncio.sleep(TTL_S)
        assert not session.alive, "what is over stays over"


async def test_b18_a_process_that_was_stopped_knows_at_once_that_it_is_too_late() -> None:
    async with running_session() as (_channels, session, lost):
        await asyncio.sleep(TTL_S)
        assert lives(session)
        lost[0] = TTL_S  # nothing ran meanwhile, not even a renewal
        assert not lives(session), "its key may still be there, which proves nothing"
        await asyncio.sleep(TTL_S)
        assert not lives(session), "a renewal that etcd answers all the same brings nothing back"


async def test_a_lease_that_etcd_forgot_is_over_at_once() -> None:
    async with running_session() as (channels, session, _):
        channels.forgotten = True
        await session.ended()
        assert asyncio.get_running_loop().time() < TTL_S
        assert not session.alive
