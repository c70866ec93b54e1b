"""The metrics of clocks: how many differ, and by how much, for each kind of clock."""

import asyncio
from pathlib import Path

import pytest
from tests.support.readings import values_of
from tests.support.virtual_timelines import virtual_fleet

from tidemill.broker.clock_metrics import clock_readings, timeline_clock_readings
from tidemill.clocks.core.doubt import DoubtKind, DoubtLimits, Reading
from tidemill.clocks.record import ClockRecord
from tidemill.clocks.watch import STORE, ClockWatch
from tidemill.timelines.health import ClientKind

NOW = 1_800_000_000_000


class FixedClocks:
    """Clocks that stand still."""

    def wall_ms(self) -> int:
        return NOW

    def boot_ms(self) -> int:
        return 5_000

    def boot_id(self) -> str:
        return "boot"


def drifts(found: dict[str, float]) -> dict[str, tuple[float, float | None]]:
    """For each target, how many clocks differ and by how many seconds at most."""
    start = 'tidemill_clock_drifts{target="'
    targets = [key.removeprefix(start).removesuffix('"}') for key in found if key.startswith(start)]
    return {
        target: (found[f'{start}{target}"}}'], found.get(f'tidemill_clock_drift_seconds{{target="{target}"}}'))
        for target in targets
    }


def test_the_clocks_of_brokers_and_of_coordination(tmp_path: Path) -> None:
    watch = ClockWatch(FixedClocks(), ClockRecord(tmp_path, ()), DoubtLimits())
    assert drifts(values_of(clock_readings(watch)())) == {"broker": (0, None), "coordination": (0, None)}
    for target, offset_ms, error_ms in (("broker 1", 400, 1), ("broker 2", -90_000, 5), ("broker 3", 1_500, 600)):
        watch._core.read(Reading(DoubtKind.BROKERS, target, NOW + offset_ms, error_ms, 5_000))
    watch._core.read(Reading(DoubtKind.COORDINATION, "coordination", NOW + 2_000, 10, 5_000))
    watch._core.read(Reading(DoubtKind.STORAGE, STORE, NOW + 90_000, 10, 5_000))
    watch.look()
    found = values_of(clock_readings(watch)())
    # The reading of broker 3 may be wrong by 600 ms, so its clock may be right.
    assert drifts(found) == {"broker": (1, -90), "coordination": (1, 2)}
    assert found['tidemill_clock_in_doubt{reason="storage"}'] == 1
    assert found['tidemill_clock_in_doubt{reason="brokers"}'] == 0


@pytest.mark.event_loop("virtual_selector")
async def test_the_clocks_of_the_store_and_of_clients() -> None:
    async with virtual_fleet() as fleet:
        guard = fleet.dispatcher.guard
        none = {"store": (0, None), "consumers": (0, None), "producers": (0, None)}
        assert drifts(values_of(timeline_clock_readings(fleet.dispatcher)())) == none
        guard.store_drift(-1_001)
        consumer = fleet.consumer()
        fleet.dispatcher.heard("line", consumer, latency_us=10, drift_us=4_000_000)
        guard.witness("one", 30, ClientKind.PRODUCER)
        guard.witness("two", -7_000, ClientKind.PRODUCER)
        guard.witness("three", 6_000, ClientKind.PRODUCER)
        found = drifts(values_of(timeline_clock_readings(fleet.dispatcher)()))
        assert found == {"store": (1, -1.001), "consumers": (1, 4), "producers": (2, -7)}
        fleet.dispatcher.detach("line", consumer)
        assert drifts(values_of(timeline_clock_readings(fleet.dispatcher)()))["consumers"] == (0, None)
        await asyncio.sleep(61)
        assert drifts(values_of(timeline_clock_readings(fleet.dispatcher)()))["producers"] == (0, None)
