"""The metrics of the messages that are in the timelines."""

import asyncio
from collections.abc import Callable

import pytest
from tests.support.readings import values_of
from tests.support.virtual_timelines import Fleet, virtual_fleet

from tidemill.broker.backlog_metrics import WITHIN, backlog_readings
from tidemill.timelines import stats
from tidemill.timelines.core.backlog import WINDOWS_MS
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dispatcher import Dispatcher

pytestmark = pytest.mark.event_loop("virtual_selector")
HOUR_MS = 3_600_000


async def backlog(fleet: Fleet, leads: Callable[[str], bool] = lambda _: False) -> dict[str, float]:
    return values_of(await backlog_readings(fleet.dispatcher, leads)(False))


def waiting(found: dict[str, float], name: str = "line") -> list[float]:
    assert len(WITHIN) == len(WINDOWS_MS) + 1
    return [found[f'tidemill_timeline_waiting_messages{{timeline="{name}",within="{each}"}}'] for each in WITHIN]


async def test_messages_are_available_leased_or_wait_in_a_window() -> None:
    async with virtual_fleet(settings=TimelineSettings(lease_ms=60_000)) as fleet:
        now_ms = fleet.now_ms()
        await fleet.schedule(*[now_ms] * 5, now_ms + 900, now_ms + 9_000, now_ms + 2 * HOUR_MS, now_ms + 99 * HOUR_MS)
        found = await backlog(fleet)
        assert found['tidemill_timeline_available_messages{timeline="line"}'] == 5
        assert found['tidemill_timeline_active_leases{timeline="line"}'] == 0
        assert waiting(found) == [1, 2, 2, 2, 2, 3, 4]
        assert found["tidemill_timeline_backlog_age_seconds"] == 0
        fleet.consumer(max_in_flight=2)
        await asyncio.sleep(5)
        found = await backlog(fleet)
        assert found['tidemill_timeline_available_messages{timeline="line"}'] == 4
        assert found['tidemill_timeline_active_leases{timeline="line"}'] == 2
        assert waiting(found) == [0, 1, 1, 1, 1, 2, 3]
        assert (await backlog(fleet))["tidemill_timeline_backlog_age_seconds"] == 0


async def test_scheduled_records_wait_under_the_name_of_their_topic() -> None:
    async with virtual_fleet() as fleet:
        for name in ("__schedule.orders", "__waiting.mail", "__schedule.mail"):
            await fleet.dispatcher.create(name, TimelineSettings())
            await fleet.schedule(fleet.now_ms(), fleet.now_ms() + 5_000, fleet.now_ms() + HOUR_MS, name=name)
        found = await backlog(fleet)
        for topic, timelines in (("orders", 1), ("mail", 2)):
            assert found[f'tidemill_scheduled_records_waiting{{topic="{topic}"}}'] == 2 * timelines
            assert found[f'tidemill_scheduled_records_late{{topic="{topic}"}}'] == timelines


async def test_scheduled_records_of_a_shared_store_are_reported_by_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "is_shared", True)
    async with virtual_fleet() as fleet:
        for name in ("__schedule.orders", "__schedule.mail", "line"):
            await fleet.dispatcher.create(name, TimelineSettings())
        await fleet.schedule(fleet.now_ms() + 5_000, name="__schedule.orders")
        found = await backlog(fleet, lambda topic: topic == "orders")
        assert found['tidemill_scheduled_records_waiting{topic="orders"}'] == 1
        assert 'tidemill_scheduled_records_waiting{topic="mail"}' not in found
        assert 'tidemill_timeline_available_messages{timeline="__schedule.mail"}' in found


async def test_a_deleted_timeline_is_not_reported_again() -> None:
    async with virtual_fleet() as fleet:
        await fleet.schedule(fleet.now_ms())
        await backlog(fleet)
        await fleet.dispatcher.delete("line")
        assert not [key for key in await backlog(fleet) if "line=" in key]
        assert fleet.dispatcher.stats.names() == []


async def test_timelines_beyond_the_limit_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "NAMED_MAX", 2)
    async with virtual_fleet() as fleet:
        for number in range(9):
            await fleet.dispatcher.create(f"line-{number}", TimelineSettings())
            await fleet.schedule(fleet.now_ms(), fleet.now_ms() + 500, name=f"line-{number}")
        found = await backlog(fleet)
        shown = {key for key in found if key.startswith("tidemill_timeline_available")}
        names = ("line-0", "line-1", stats.OTHER_TIMELINES)
        assert shown == {f'tidemill_timeline_available_messages{{timeline="{name}"}}' for name in names}
        assert found[f'tidemill_timeline_available_messages{{timeline="{stats.OTHER_TIMELINES}"}}'] == 7
        assert waiting(found, stats.OTHER_TIMELINES) == [7] * 7
