"""Every deletion by time asks the clock; retention keeps its interval."""

import asyncio
from typing import Any, cast

from tidemill.broker.partitions import Partitions
from tidemill.broker.tending import FIRST_RETENTION_MS, Tending
from tidemill.model.broker_settings import parse
from tidemill.model.topic_settings import parse as topic_settings
from tidemill.streams.core.retention import SegmentFacts, retained_start
from tidemill.streams.upkeep import Chores

INTERVAL_MS = 300_000


class Tended:
    """A partition that notes what it may do."""

    topic, index = "t", 0

    def __init__(self) -> None:
        self.chores: list[Chores] = []

    async def tend(self, now_ms: int, expiry_ms: int, chores: Chores) -> None:
        assert now_ms
        assert expiry_ms
        self.chores.append(chores)


class Many:
    """One partition, on a disk that may be full."""

    lacks_room = False

    def __init__(self, one: Tended) -> None:
        self._one = one
        self.store = self
        self.full = False

    def __iter__(self) -> Any:
        return iter([self._one])


def test_retention_has_its_own_interval_and_asks_the_clock() -> None:
    one, steady_ms, trusted = Tended(), 0, True
    many = Many(one)
    tending = Tending(cast("Partitions", many), parse({}), lambda: steady_ms, lambda: trusted)

    def round_at(ms: int) -> Chores:
        nonlocal steady_ms
        steady_ms = ms
        asyncio.run(tending.run(1))
        return one.chores[-1]

    assert round_at(5_000) == Chores(retain=False, by_time=True)
    assert round_at(FIRST_RETENTION_MS) == Chores(retain=True, by_time=True)
    assert round_at(FIRST_RETENTION_MS + INTERVAL_MS - 1) == Chores(retain=False, by_time=True)
    trusted = False
    assert round_at(FIRST_RETENTION_MS + INTERVAL_MS) == Chores(retain=True, by_time=False)
    many.full = True
    assert round_at(FIRST_RETENTION_MS + INTERVAL_MS + 5_000) == Chores(retain=True, by_time=False)


def test_retention_by_size_goes_on_without_a_trusted_clock() -> None:
    settings = topic_settings({"retention.ms": "1000", "retention.bytes": "100"})
    segments = [SegmentFacts(at * 10, at * 10 + 10, 60, 0, 0) for at in range(3)]
    assert retained_start(segments, settings, 0, 10**12) == 30
    assert retained_start(segments, settings, 0, 10**12, by_time=False) == 10
