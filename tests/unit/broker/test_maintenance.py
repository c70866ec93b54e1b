"""Every deletion by time asks the clock; retention keeps its interval."""

from collections.abc import Callable
from typing import Any, cast

from tidemill.broker.maintenance import FIRST_RETENTION_MS, BrokerMaintenance
from tidemill.broker.partitions import Partitions
from tidemill.model.broker_settings import parse
from tidemill.model.topic_settings import parse as topic_settings
from tidemill.streams.core.retention import SegmentFacts, retained_start
from tidemill.streams.maintenance import MaintenanceTasks

INTERVAL_MS = 300_000
DAY_MS = 86_400_000


class Tended:
    """A partition that notes what it may do."""

    topic, index = "t", 0

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.tasks: list[MaintenanceTasks] = []
        self.tended_ms: list[int] = []
        self._meanwhile = meanwhile

    async def maintain(self, now_ms: int, expiry_ms: int, tasks: MaintenanceTasks) -> None:
        assert expiry_ms
        self.tended_ms.append(now_ms)
        self.tasks.append(tasks)
        self._meanwhile()


class Many:
    """Partitions on a disk that may be full."""

    lacks_room = False

    def __init__(self, *partitions: Tended) -> None:
        self._partitions = partitions
        self.store = self
        self.full = False

    def __iter__(self) -> Any:
        return iter(self._partitions)


async def test_retention_has_its_own_interval_and_asks_the_clock() -> None:
    one, steady_ms, trusted = Tended(), 0, True
    many = Many(one)
    tending = BrokerMaintenance(cast("Partitions", many), parse({}), lambda: 1, lambda: steady_ms, lambda: trusted)

    async def round_at(ms: int) -> MaintenanceTasks:
        nonlocal steady_ms
        steady_ms = ms
        await tending.run()
        return one.tasks[-1]

    assert await round_at(5_000) == MaintenanceTasks(retain=False, by_time=True)
    assert await round_at(FIRST_RETENTION_MS) == MaintenanceTasks(retain=True, by_time=True)
    assert await round_at(FIRST_RETENTION_MS + INTERVAL_MS - 1) == MaintenanceTasks(retain=False, by_time=True)
    trusted = False
    assert await round_at(FIRST_RETENTION_MS + INTERVAL_MS) == MaintenanceTasks(retain=True, by_time=False)
    many.full = True
    assert await round_at(FIRST_RETENTION_MS + INTERVAL_MS + 5_000) == MaintenanceTasks(retain=True, by_time=False)


async def test_a_clock_that_is_corrected_during_a_round_is_read_again() -> None:
    wall_ms, right_ms = 30 * DAY_MS, 1_000

    def correct() -> None:
        nonlocal wall_ms
        wall_ms = right_ms

    first, second = Tended(correct), Tended()
    many = cast("Partitions", Many(first, second))
    tending = BrokerMaintenance(many, parse({}), lambda: wall_ms, lambda: 0, lambda: wall_ms == right_ms)
    await tending.run()
    assert [(first.tasks[0].by_time, first.tended_ms), (second.tasks[0].by_time, second.tended_ms)] == [
        (False, [30 * DAY_MS]),
        (True, [right_ms]),
    ]


def test_retention_by_size_needs_no_trusted_clock() -> None:
    settings = topic_settings({"retention.ms": "1000", "retention.bytes": "100"})
    segments = [SegmentFacts(at * 10, at * 10 + 10, 60, 0, 0) for at in range(3)]
    assert retained_start(segments, settings, 0, 10**12) == 30
    assert retained_start(segments, settings, 0, 10**12, by_time=False) == 10
