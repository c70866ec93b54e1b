"""An unexpected error in a loop of a timeline: the loop starts again, and every message is delivered."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.virtual_timelines import Received, virtual_fleet

from tidemill.timelines.consumer import TimelineConsumer
from tidemill.timelines.consumer_queues import ConsumerQueues
from tidemill.timelines.core.timeline import TimelineInfo, TimelineSettings
from tidemill.timelines.dead_letter_queue import DeadLetterQueue
from tidemill.timelines.delivery import TimelineDelivery
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.lifecycle import Lifecycle
from tidemill.timelines.prefetcher import Prefetcher

pytestmark = pytest.mark.event_loop("virtual_selector")


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, *calls: int) -> list[int]:
    """Let these calls of a method raise what no loop expects."""
    original: Callable[..., Any] = getattr(owner, method)
    made: list[int] = []

    def failing(*arguments: Any, **more: Any) -> Any:
        made.append(len(made) + 1)
        if made[-1] in calls:
            raise RuntimeError(f"injected into {method}")
        return original(*arguments, **more)

    monkeypatch.setattr(owner, method, failing)
    return made


@pytest.mark.parametrize(
    ("owner", "method", "task"),
    [
        (TimelineDelivery, "_deal_once", "timeline delivery"),
        (TimelineDelivery, "_ripen", "timeline delivery"),
        (TimelineDelivery, "_queue_capacity", "timeline delivery"),
        (TimelineDelivery, "_grant", "timeline delivery"),
        (ConsumerQueues, "take", "timeline delivery"),
        (ConsumerQueues, "queue", "timeline delivery"),
        (Prefetcher, "_fill", "timeline feed"),
        (Prefetcher, "_take_in", "timeline feed"),
        (Prefetcher, "_pause_s", "timeline feed"),
    ],
)
async def test_delivery_continues_after_an_unexpected_error(
    owner: type, method: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with virtual_fleet(settings=TimelineSettings(lease_ms=5_000)) as fleet:
        consumer = fleet.consumer(max_in_flight=50)
        made = fail_at(monkeypatch, owner, method, 1, 3)
        completions: list[Received] = []
        fleet.treat = completions.append
        wanted: set[str] = set()
        for _ in range(8):
            now_ms = fleet.now_ms()
            wanted |= set(await fleet.schedule(*(now_ms + 40 * number for number in range(50))))
            await asyncio.sleep(2)
            done, completions[:] = list(completions), []
            await fleet.complete(done)
        await fleet.until(lambda: {one.id for one in fleet.received} == wanted)
        assert len(made) > 3
        assert consumer.reserved == 0
        restarts = fleet.dispatcher.supervisor.restarts
        assert restarts[task] + restarts["timeline load"] == 2  # the load uses the methods of the delivery
        assert restarts[task] > 0
        assert any("injected into" in reason for reason in fleet.dispatcher.supervisor.reasons())


async def test_messages_that_were_taken_out_when_the_error_came_are_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(max_in_flight=1_000)
        await asyncio.sleep(1)
        made = fail_at(monkeypatch, ConsumerQueues, "queue", 1)
        wanted = await fleet.schedule(*([fleet.now_ms() + 1_000] * 100))
        await fleet.until(lambda: len(fleet.received) == 100, limit_s=5)  # long before the next rescan
        assert {one.id for one in fleet.received} == set(wanted)
        assert made


async def test_dead_letters_are_moved_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_fleet(
        settings=TimelineSettings(lease_ms=1_000, max_attempts=1, dead_letter="timeline:dead-letters")
    ) as fleet:
        fleet.consumer()
        fail_at(monkeypatch, DeadLetterQueue, "_try", 1)
        await fleet.schedule(fleet.now_ms() + 10)
        await fleet.until(lambda: fleet.dispatcher.stats.of("line").messages["dead"] == 1, limit_s=120)
        assert fleet.dispatcher.supervisor.restarts["timeline dead letters"] == 1


async def test_the_clocks_are_watched_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_fleet() as fleet:
        made = fail_at(monkeypatch, HealthMonitor, "check", 1, 2)
        await fleet.until(lambda: len(made) > 5)
        assert fleet.dispatcher.supervisor.restarts["timeline clock watch"] == 2


async def test_a_deleted_timeline_is_removed_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_fleet() as fleet:
        await fleet.schedule(*(fleet.now_ms() + 1_000_000 for _ in range(10)))
        original, calls = Lifecycle._claims, []

        async def failing(life: Lifecycle, timeline: TimelineInfo) -> bool:
            calls.append(timeline.name)
            if len(calls) == 1:
                raise RuntimeError("injected into the removal")
            return await original(life, timeline)

        monkeypatch.setattr(Lifecycle, "_claims", failing)
        await fleet.dispatcher.delete("line")
        async with asyncio.timeout(60):
            await fleet.dispatcher.removed("line")
        assert [one.name for one in fleet.dispatcher.timelines()] == []
        assert fleet.dispatcher.supervisor.restarts["timeline removal"] == 1


async def test_a_consumer_whose_push_fails_does_not_keep_others_from_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(id="good")
        bad = fleet.consumer(id="bad")
        await asyncio.sleep(20)  # both are dealt in

        def refuse(_: TimelineConsumer, *__: Any) -> None:
            raise RuntimeError("injected into push")

        bad.push = refuse  # type: ignore[assignment]
        completions: list[Received] = []
        wanted = await fleet.schedule(*(fleet.now_ms() + 500 + 10 * number for number in range(40)))
        fleet.treat = completions.append
        await asyncio.sleep(3)
        assert completions
        await fleet.complete(completions)
        fleet.dispatcher.detach("line", bad)
        await fleet.until(lambda: {one.id for one in fleet.received} == set(wanted))
        assert fleet.dispatcher.supervisor.failures["timeline push"] > 0


async def test_closing_is_quick_while_a_loop_waits_to_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        fail_at(monkeypatch, TimelineDelivery, "_deal_once", *range(1, 1_000))
        await asyncio.sleep(100)
        before = fleet.world.loop.time()
        await fleet.dispatcher.close()
        assert fleet.world.loop.time() - before < 0.1
    assert fleet.dispatcher.supervisor.reasons() == []
