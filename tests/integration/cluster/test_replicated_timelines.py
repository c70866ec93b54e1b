"""Replicated timelines on three brokers with etcd: any broker takes every call, and the loss of one loses nothing."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import confluent_kafka
import grpc
import pytest
from tests.integration.cluster.test_timelines import address
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.command_line import CommandLine
from tests.support.metrics import scraped
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.servers.grpc.timeline_peers import PATH
from tidemill.timelines.core.errors import UnknownTimeline
from tidemill.timelines.core.frames import pack
from tidemill.timelines.sqlite import open_store

SETTINGS = {"tidemill.tend.interval.ms": "200"}
MESSAGES = 400


@contextmanager
def running_replicated() -> Iterator[Brokers]:
    with running_brokers(3, SETTINGS, grpc="127.0.0.1:0", timelines="replicated:") as brokers:
        yield brokers


class SteadyConsumer(Thread):
    """A consumer of one broker that connects again after an error, and what it has completed."""

    def __init__(self, where: str) -> None:
        super().__init__(daemon=True)
        self.done: list[bytes] = []
        self.early: list[bytes] = []
        self.in_doubt: set[bytes] = set()
        """Handled, but the broker did not confirm the completion."""
        self._where = where
        self._stopping = Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            with (
                suppress(TidemillError),
                Timeline(self._where, "reminders", timeout_ms=2_000, follow_hints=False) as timeline,
            ):
                for lease in timeline.work(idle_ms=2_000):
                    if time.time() < lease.due.timestamp():
                        self.early.append(lease.body)
                    self.in_doubt.add(lease.body)
                    lease.complete()
                    self.in_doubt.discard(lease.body)
                    self.done.append(lease.body)
                    if self._stopping.is_set():
                        return
            self._stopping.wait(0.2)

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)


def test_a_killed_broker_loses_no_message_and_repeats_no_completed_one() -> None:
    with running_replicated() as brokers, Timeline(address(brokers, 1), "reminders") as first:
        first.create(window_ms=1_000, lease_ms=3_000)
        consumers = {number: SteadyConsumer(address(brokers, number)) for number in (1, 2, 3)}
        for each in consumers.values():
            each.start()
        eventually(lambda: len(brokers.keys("consumers/reminders/")) == 3, "not all consumers are registered")
        start = time.time() + 0.5
        bodies = [b"%d" % number for number in range(MESSAGES)]
        first.schedule([Message(body, due=start + number / 50) for number, body in enumerate(bodies)])
        eventually(lambda: sum(len(each.done) for each in consumers.values()) >= 80, "messages do not come")
        brokers.kill(2)
        doubtful = set(consumers[2].in_doubt)  # its consumer continues at another broker
        done = [each.done for each in consumers.values()]
        eventually(
            lambda: {body for each in done for body in each} | doubtful >= set(bodies),
            "the rest is not delivered",
            within_s=60,
        )
        for each in consumers.values():
            each.stop()
            doubtful |= each.in_doubt
        again = Counter(body for each in done for body in each)
        assert {body for body, count in again.items() if count > 1} <= doubtful
        assert not [body for each in consumers.values() for body in each.early]
        eventually(lambda: left(brokers, 1) == left(brokers, 3) == 0, "completed messages are left")
        assert code_of_a_stranger(address(brokers, 1)) is grpc.StatusCode.PERMISSION_DENIED
        brokers.start(2)
        assert left(brokers, 2) == 0


def test_messages_are_there_when_all_brokers_were_killed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_replicated() as brokers:
        tidemill = CommandLine(brokers.bootstrap, capsys, monkeypatch)
        tidemill.fine("topic", "create", "orders", "--partitions", "1", "--replication-factor", "3")
        producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
        later = int(time.time() * 1000) + 6_000
        producer.produce("orders", b"later", headers={"tidemill-due": str(later).encode()})
        with Timeline(address(brokers, 1), "reminders") as timeline:
            timeline.create()
            timeline.schedule([Message(b"%d" % number, due=time.time() + 3600) for number in range(50)])
        assert producer.flush(30) == 0
        for number in (1, 2, 3):
            brokers.kill(number)
        brokers.start()
        for number in (1, 2, 3):
            assert left(brokers, number) == 50
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": brokers.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        try:
            found = consumer.poll(60)
            assert found is not None
            assert found.value() == b"later"
            assert time.time() * 1000 >= later
        finally:
            consumer.close()


def test_the_journal_stays_small_and_an_empty_broker_gets_everything_from_it() -> None:
    small = {"tidemill.timelines.journal.bytes": "200000", "tidemill.timelines.topic.segment.bytes": "100000"}
    with (
        running_brokers(
            3, {**SETTINGS, **small}, grpc="127.0.0.1:0", http="127.0.0.1:0", timelines="replicated:"
        ) as brokers,
        Timeline(address(brokers, 1), "reminders") as timeline,
    ):
        timeline.create()
        kept = [Message(bytes(500), due=time.time() + 3600, id=f"kept{number}") for number in range(100)]
        timeline.schedule(kept)
        for turn in range(40):
            names = [f"gone{turn}-{number}" for number in range(100)]
            timeline.schedule([Message(bytes(500), due=time.time() + 3600, id=one) for one in names])
            timeline.cancel(names)
        written = 40 * 100 * 500
        eventually(lambda: journal_bytes(brokers, 1) < written / 2, "the journal is not trimmed")
        assert sum(metric(brokers, number, "journal_snapshot_seconds_count") for number in (1, 2, 3)) >= 1
        brokers.stop(2)
        shutil.rmtree(brokers.home(2))
        brokers.start(2)
        wanted = {one.id for one in kept}
        eventually(
            lambda: index_ids(brokers, 2) == wanted, "the empty broker does not get all messages", interval_s=0.5
        )
        assert left(brokers, 2) == 100
        eventually(lambda: metric(brokers, 2, "index_lag_entries") == 0, "the index lacks entries")
        assert metric(brokers, 2, "index_position") > 0


def metric(brokers: Brokers, number: int, name: str) -> float:
    """The sum of a metric over the partitions of the journal."""
    found = scraped(f"http://{brokers.servers[number]['http']}")
    return sum(value for sample, value in found.items() if sample.startswith(f"tidemill_timeline_{name}{{"))


def index_ids(brokers: Brokers, number: int) -> set[str]:
    """The ids of the messages in the indexes of a broker, as it has them on its disk."""

    async def read() -> set[str]:
        found: set[str] = set()
        for path in sorted((brokers.home(number) / "timelines").glob("*.db")):
            store = await open_store(path)
            try:
                with suppress(UnknownTimeline, StoreUnavailable):  # the broker is just creating its tables
                    found |= {one.id for one in await store.find("reminders", now_ms=0, limit=1_000)}
            finally:
                await store.close()
        return found

    return asyncio.run(read())


def journal_bytes(brokers: Brokers, number: int) -> int:
    """The size of the journal at a broker."""
    folder = brokers.home(number) / "streams" / "__timelines"
    return sum(path.stat().st_size for path in folder.rglob("*.log"))


def code_of_a_stranger(where: str) -> grpc.StatusCode:
    """How a broker answers a client that calls as only brokers may."""
    with grpc.insecure_channel(where) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(PATH)(pack([0, "catalogue"]), timeout=20)
    code: grpc.StatusCode = refused.value.code()
    return code


def left(brokers: Brokers, number: int) -> int:
    """The messages of the timeline, as this broker counts them."""
    for _ in range(50):
        with suppress(TidemillError), Timeline(address(brokers, number), "reminders", follow_hints=False) as timeline:
            return timeline.count()
        time.sleep(0.2)
    raise AssertionError(f"broker {number} does not count")
