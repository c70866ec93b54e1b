"""The wall clock of a running broker is set: what `/health` and `/metrics` say, and that nothing is delivered."""

import time
from collections.abc import Iterator, Mapping

import pytest
from tests.integration.health import timelines_health as health
from tests.support.metrics import scraped
from tests.support.system_clock import SystemClock, system_clock
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.app.clocks import SystemClocks
from tidemill.client.timelines import ClockState
from tidemill.testing import Broker

__all__ = ["system_clock"]


class Wall:
    """A wall clock that a test can set."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def now_ns(self) -> int:
        return time.time_ns() + self.ahead_ns


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    """The wall clock of every broker that is started from now on."""
    wall = Wall()
    monkeypatch.setattr(SystemClocks, "wall_ns", lambda _: wall.now_ns())
    return wall


@pytest.fixture
def broker(wall: Wall) -> Iterator[Broker]:
    with Broker(flags={"timelines": "memory:"}) as running:
        yield running


def degradations(found: Mapping[str, float]) -> set[str]:
    """The reasons for a degraded broker that hold."""
    holding = {key for key, value in found.items() if key.startswith("tidemill_degraded{") and value}
    assert holding <= {f'tidemill_degraded{{reason="{each}"}}' for each in ("clock_in_doubt", "timelines_wall_clock")}
    return holding


@pytest.fixture
def ahead(system_clock: SystemClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker whose clock is five seconds ahead of those of its clients, and was so before its start."""
    system_clock.jump("+5s")
    with Broker(process=True) as running:
        monkeypatch.delenv("LD_PRELOAD")
        yield running


def test_clients_learn_that_their_clock_differs(ahead: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with Timeline(ahead.grpc, "line") as timeline:
        timeline.create(lease_ms=60_000)

        def knows() -> bool:
            timeline.schedule([Message(b"tea", 0.0)])
            return timeline.clock is not None and "client" in timeline.clock.drifts_ms

        eventually(knows)
        assert timeline.clock is not None
        assert -5_100 < timeline.clock.drifts_ms["client"] < -4_900
        reported: list[ClockState] = []
        for lease in timeline.work(idle_ms=20_000, on_clock=reported.append):
            worker = lease.worker
            eventually(lambda: bool(reported))
            lease.complete()
            found = scraped(ahead.http)
            break
        assert worker.clock == reported[0]
        assert -5_100 < reported[0].drifts_ms["client"] < -4_900
        assert not reported[0].in_doubt
        for target in ("consumers", "producers"):
            assert -5.1 < found[f'tidemill_clock_drift_seconds{{target="{target}"}}'] < -4.9
    logged = [record.getMessage() for record in caplog.records if "clock_drift: this machine" in record.getMessage()]
    assert len(logged) == 2, "once by the producer, once by the consumer"


@pytest.mark.parametrize("jump_s", [120, -120])
def test_a_wall_clock_that_is_set_degrades_and_heals(broker: Broker, wall: Wall, jump_s: int) -> None:
    with Timeline(broker.grpc, "line") as timeline:
        timeline.create(lease_ms=60_000)
        timeline.schedule([Message(b"held", 0.0), Message(b"waiting", time.time() + 3)])
        reported: list[ClockState] = []
        work = timeline.work(consumer_id="w", idle_ms=60_000, on_clock=reported.append)
        held = next(work)
        wall.ahead_ns = jump_s * 1_000_000_000
        eventually(lambda: health(broker)["state"] == "degraded")
        assert "the wall clock jumped" in str(health(broker)["reasons"])
        found = scraped(broker.http)
        assert found['tidemill_timelines_state{state="degraded"}'] == 1
        assert degradations(found)
        assert abs(found['tidemill_clock_drift_seconds{target="consumers"}']) < 1  # its clock was not set
        eventually(lambda: bool(reported))
        assert reported[0].in_doubt
        assert "the wall clock jumped" in str(reported[0].reasons)
        held.complete()  # its lease is as live as before: it is measured by the clock that cannot be set
        timeline.schedule([Message(b"overdue", 0.0)])
        time.sleep(0.5)  # long enough for a delivery that must not happen
        assert timeline.count("leased") == 0
        wall.ahead_ns = 0
        eventually(lambda: health(broker)["state"] == "healthy")
        found = scraped(broker.http)
        assert found['tidemill_timelines_state{state="healthy"}'] == 1
        assert not degradations(found)
        eventually(lambda: reported[-1] == ClockState(in_doubt=False))
        for lease in (next(work), next(work)):
            assert time.time() >= lease.due.timestamp()
            lease.complete()
        work.close()
