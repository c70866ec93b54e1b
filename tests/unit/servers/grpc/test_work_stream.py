"""The stream of a consumer of timelines, where a part of it fails."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.security.core.principal import ANONYMOUS
from tidemill.servers.grpc.call import Caller
from tidemill.servers.grpc.channel_counts import ChannelCounts
from tidemill.servers.grpc.client_sessions import ClientSessions
from tidemill.servers.grpc.work_stream import work
from tidemill.wire.grpc import timeline_pb2 as wire

LIMIT_S = 30
DONE = wire.Operation(action=wire.ACTION_COMPLETE, seq=1, token=1)


class Failing:
    """A dispatcher whose store raises an unexpected error."""

    clock = SimpleNamespace(now_ms=lambda: 0, wall_us=lambda: 0)

    def attach(self, *_: Any, **__: Any) -> object:
        return object()

    def detach(self, *_: Any) -> None:
        pass

    def alive(self, *_: Any) -> None:
        pass

    async def settle(self, *_: Any) -> None:
        raise RuntimeError("an unexpected error")


async def ups(session: str) -> AsyncIterator[wire.WorkUp]:
    yield wire.WorkUp(start=wire.WorkStart(session=session))
    yield wire.WorkUp(operations=wire.Operations(number=1, operations=[DONE]))
    await asyncio.Event().wait()  # the consumer waits for the outcome


async def test_a_stream_ends_when_its_operations_cannot_be_settled() -> None:
    sessions = ClientSessions(lambda: "s")
    sessions.open(ANONYMOUS, wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline="later", id="worker"))

    call: Any = SimpleNamespace(
        caller=Caller(), rights=SimpleNamespace(check_topic=lambda *_: None), check_login=lambda _: None
    )

    hints: Any = SimpleNamespace(of_timeline=lambda *_: None)

    async def consume() -> None:
        async with asyncio.timeout(LIMIT_S):
            async for _ in work(Failing(), sessions, ups("s"), call, ChannelCounts(BrokerMetrics()), hints):  # type: ignore[arg-type]
                pass

    with pytest.raises(StoreUnavailable, match="unexpected error"):
        await consume()
