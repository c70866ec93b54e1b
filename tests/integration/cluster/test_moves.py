"""Four brokers with both roles: clients that know one of them are spread over two, and move when the balance is off."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import grpc
import pytest
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.waiting import eventually

from tidemill import Consumer, Message, Timeline, TopicProducer
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.wire.grpc import broker_pb2, broker_pb2_grpc

CLIENTS = 8
WINDOW_MS = 2_000
SETTINGS = {"tidemill.balance.window.ms": str(WINDOW_MS), "tidemill.tend.interval.ms": "200"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with running_brokers(4, SETTINGS, racks=False, grpc="127.0.0.1:0", timelines="replicated:") as cluster:
        eventually(lambda: len(cluster.keys("loads/")) == 4, "a broker has not published its load")
        yield cluster


def address(brokers: Brokers, number: int) -> str:
    return str(brokers.servers[number]["grpc"])


class WorkingClient:
    """One consumer of a timeline, in a thread."""

    def __init__(self, address: str, name: str, number: int, done: Counter[bytes], *, follows: bool = True) -> None:
        self.timeline = Timeline(address, name, follow_hints=follows)
        self._done = done
        self._number = number
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for lease in self.timeline.work(consumer_id=f"worker-{self._number}", idle_ms=60_000):
                self._done[lease.body] += 1
                with suppress(StoreUnavailable):  # its broker was killed meanwhile: the message comes again
                    lease.complete()
        except Exception as error:  # noqa: BLE001 -- the test asserts that there is none
            self.error = error

    @property
    def address(self) -> str:
        """The broker that it uses now."""
        workers = list(self.timeline._async._workers)
        return workers[0].address if workers and workers[0]._was_greeted else ""

    @property
    def moves(self) -> int:
        """How often it has followed a hint."""
        return next(iter(self.timeline._async._workers)).moves

    def close(self) -> None:
        """End the work."""
        self.timeline.close()
        self._thread.join(WAIT_S)


def spread(clients: list[WorkingClient]) -> list[int]:
    """How many clients each used broker has, smallest first."""
    assert [client.error for client in clients if client.error] == []
    found = Counter(client.address for client in clients)
    return sorted(found.values()) if "" not in found else []


def finish(clients: list[WorkingClient]) -> None:
    for client in clients:
        client.close()
    assert [client.error for client in clients if client.error] == []


def test_eight_consumers_that_start_at_once_use_two_of_four_brokers(brokers: Brokers) -> None:
    done: Counter[bytes] = Counter()
    with Timeline(address(brokers, 1), "together") as timeline:
        timeline.create(lease_ms=20_000, window_ms=1_000)
        clients = [
            WorkingClient(address(brokers, 1 + number % 4), "together", number, done) for number in range(CLIENTS)
        ]
        eventually(lambda: spread(clients) == [4, 4], f"they use {spread(clients)}")
        timeline.schedule([Message(b"%d" % number, due=time.time()) for number in range(100)])
        eventually(lambda: len(done) == 100, "a message is missing")
        assert spread(clients) == [4, 4]
        assert [client.moves for client in clients] == [0] * CLIENTS
        finish(clients)
    assert set(done.values()) == {1}


def test_eight_producers_that_start_at_once_use_two_of_four_brokers(brokers: Brokers) -> None:
    with Timeline(address(brokers, 1), "produced", follow_hints=False) as timeline:
        timeline.create()
    with ExitStack() as opened:
        producers = [
            opened.enter_context(Timeline(address(brokers, 1 + number % 4), "produced")) for number in range(CLIENTS)
        ]
        threads = [
            threading.Thread(target=each.schedule, args=([Message(b"x", due=time.time() + 3_600)],))
            for each in producers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        used = Counter(each._async._connection.address for each in producers)
        assert sorted(used.values()) == [4, 4], used
        assert producers[0].count() == CLIENTS


def test_consumers_of_one_broker_spread_and_leave_a_killed_one(brokers: Brokers) -> None:
    """They start at one broker and do not ask which one to use; hints move half of them, while messages flow."""
    done: Counter[bytes] = Counter()
    with Timeline(address(brokers, 1), "crowded", timeout_ms=60_000) as timeline, ExitStack() as stopped:
        timeline.create(lease_ms=5_000, window_ms=1_000)
        clients = [
            WorkingClient(address(brokers, 1), "crowded", number, done, follows=False) for number in range(CLIENTS)
        ]
        eventually(lambda: spread(clients) == [8], "they are not at one broker")
        sending = threading.Event()
        sent: list[bytes] = []

        def send() -> None:
            while not sending.wait(0.02):
                body = b"%d" % len(sent)
                with suppress(StoreUnavailable):  # the same message is sent again
                    timeline.schedule([Message(body, due=time.time())])
                    sent.append(body)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        stopped.callback(sending.set)
        began_s = time.monotonic()
        for client in clients:  # from now on they follow hints
            next(iter(client.timeline._async._workers))._rules._follows = True
        eventually(lambda: spread(clients) == [4, 4], f"they use {spread(clients)}")
        windows = 1 + (time.monotonic() - began_s) * 1_000 / WINDOW_MS
        assert all(client.moves <= windows for client in clients)
        assert sum(client.moves for client in clients) == 4
        before = dict(done)
        assert set(before.values()) == {1}, "a message was delivered twice during the moves"
        victim = next(
            number for number in (2, 3, 4, 1) if any(client.address == address(brokers, number) for client in clients)
        )
        lost = address(brokers, victim)
        brokers.kill(victim)
        stopped.callback(brokers.start, victim)
        eventually(
            lambda: bool(spread(clients)) and lost not in {client.address for client in clients},
            "they stay",
            within_s=2 * WAIT_S,
        )
        sending.set()
        sender.join(WAIT_S)
        eventually(lambda: set(sent) <= set(done), "a message is missing")
        eventually(lambda: len(spread(clients)) == 2, f"they use {spread(clients)}")
        finish(clients)


def test_members_of_a_group_spread_without_a_rebalance_or_a_second_delivery(brokers: Brokers) -> None:
    with TopicProducer(address(brokers, 1), "polled", partitions=CLIENTS, replication_factor=1) as producer:
        consumers = [
            Consumer(address(brokers, 1), group="movers", topics=["polled"], follow_hints=False) for _ in range(CLIENTS)
        ]
        eventually(lambda: all(len(each.assignment) == 1 for each in consumers), "the group is not balanced")
        epochs = {each._async._epoch for each in consumers}
        for each in consumers:
            each._async._rules._follows = True
        got: Counter[bytes | None] = Counter()
        sent = 0
        ends_s = time.monotonic() + WAIT_S
        while Counter(each._async.broker for each in consumers).most_common()[-1][1] != 4 and time.monotonic() < ends_s:
            producer.send(str(sent).encode())
            sent += 1
            for each in consumers:
                while record := each.next(timeout_ms=1):
                    got[record.value] += 1
        assert sorted(Counter(each._async.broker for each in consumers).values()) == [4, 4]
        producer.flush()
        while sum(got.values()) < sent and time.monotonic() < ends_s:
            for each in consumers:
                while record := each.next(timeout_ms=20):
                    got[record.value] += 1
        assert set(got) == {str(number).encode() for number in range(sent)}
        assert set(got.values()) == {1}
        assert {each._async._epoch for each in consumers} == epochs, "a move has rebalanced the group"
        assert sum(each._async.moves for each in consumers) == 4
        for each in consumers:
            each.close()


def test_the_broker_list_has_measured_loads(brokers: Brokers) -> None:
    with grpc.insecure_channel(address(brokers, 1)) as channel:
        stub = broker_pb2_grpc.BrokerServiceStub(channel)

        def loads() -> dict[int, broker_pb2.BrokerLoad]:
            reply = stub.GetMetadata(broker_pb2.GetMetadataRequest())
            return {each.node_id: each.load for each in reply.brokers if each.HasField("load")}

        eventually(lambda: all(len(load.peers) == 3 for load in loads().values()) and len(loads()) == 4, "no loads")
        eventually(lambda: all(load.cpu_cores > 0 for load in loads().values()), "no processor time")
        for node, load in loads().items():
            assert load.level in {"normal", "busy", "overloaded"}
            assert 0 < load.disk_used_share <= 1
            assert {peer.node_id for peer in load.peers} == {1, 2, 3, 4} - {node}
            assert all(peer.round_trip_ms > 0 and not peer.missing for peer in load.peers)
