"""A broker publishes its load under its session, at a bounded rate, and reads those of the others."""

from pathlib import Path

from tests.support.shared_store import Store
from tests.support.waiting import eventually_async
from tests.unit.broker.small_disk import SmallDisk, member

from tidemill.broker.broker import BrokerNode
from tidemill.broker.load_meter import ProcessUsage
from tidemill.broker.topic_directories import STREAMS
from tidemill.cluster.core.broker_load import LOADS, LoadLevel, LoadReport, LoadSample, decode_load, encode_load
from tidemill.cluster.core.peer_reach import HOLD_MS
from tidemill.cluster.core.registration import DEGRADED, Endpoint, Registration, encode_registration
from tidemill.testing.clock import VirtualClock


async def step(broker: BrokerNode, clock: VirtualClock, seconds: int = 1) -> None:
    """Let time pass, with a sample each second."""
    for _ in range(seconds):
        clock.advance(1_000)
        broker.loads.sample()
        await broker.loads.publish()


async def test_writes_are_bounded_and_the_load_can_be_read(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        await step(broker, clock, 4)
        assert broker.loads.writes == 0
        await step(broker, clock)
        assert broker.loads.writes == 1
        await step(broker, clock, 25)
        assert broker.loads.writes == 1, "nothing has changed"
        await step(broker, clock, 10)
        assert broker.loads.writes == 2, "it is repeated"
        broker.loads.meter.usage = lambda: ProcessUsage(disk_used=0.99)
        await step(broker, clock, 60)
        assert 3 <= broker.loads.writes <= 2 + 12
        await eventually_async(lambda: broker.metadata.view.loads[1].level is LoadLevel.OVERLOADED)
        entry = store.entries[f"{LOADS}1"]
        read = decode_load(entry.value)
        assert read is not None
        assert read.averages.disk_used > 0.95
        assert len(entry.value) < 250
        assert broker.loads.reports()[1] == broker.loads.own
    assert f"{LOADS}1" not in store.entries, "it is gone with the session"


async def test_a_load_that_is_not_repeated_is_forgotten(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        store.put(f"{LOADS}2", encode_load(LoadReport(averages=LoadSample(queue=7))))
        await eventually_async(lambda: 2 in broker.metadata.view.loads)
        assert broker.loads.reports()[2].averages.queue == 7
        clock.advance(89_000)
        assert 2 in broker.loads.reports()
        clock.advance(1_000)
        assert 2 not in broker.loads.reports()
        store.put(f"{LOADS}2", b"not a load")
        await eventually_async(lambda: 2 not in broker.metadata.view.loads)


async def test_a_broker_that_others_miss_is_degraded_for_that_reason(tmp_path: Path) -> None:
    store, clock = Store(), VirtualClock()
    async with member(tmp_path, store, SmallDisk(tmp_path / STREAMS), clock) as broker:
        other = Registration(
            2, broker.environment.new_id(), broker.environment.new_id(), kafka=Endpoint("127.0.0.1", 1)
        )
        store.put("brokers/2", encode_registration(other))
        store.put(f"{LOADS}2", encode_load(LoadReport(missing=frozenset({1}))))
        await eventually_async(lambda: 2 in broker.metadata.view.loads and 2 in broker.metadata.image.brokers)
        await step(broker, clock, HOLD_MS // 1_000)
        assert not broker.loads.verdict, "the lists may be older than the news"
        await step(broker, clock)
        assert broker.loads.verdict.unreached_by == (2,)
        await broker.maintain()
        assert broker.membership.registration.state == DEGRADED
        assert broker.membership.registration.reason.startswith("brokers are missing: broker 2 cannot reach it")
        store.put(f"{LOADS}2", encode_load(LoadReport()))
        await eventually_async(lambda: not broker.metadata.view.loads[2].missing)
        await step(broker, clock)
        assert not broker.loads.verdict
