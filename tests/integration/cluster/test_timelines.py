"""Timelines on PostgreSQL are served by every broker of a cluster."""

import threading
import time
from collections import Counter
from contextlib import suppress

import pytest
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.command_line import CommandLine
from tests.support.postgres import running_postgres
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.model.errors import TidemillError

MESSAGES = 60


def test_any_broker_delivers_what_any_broker_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running_postgres() as postgres,
        running_brokers(
            3, {"tidemill.tend.interval.ms": "200"}, grpc="127.0.0.1:0", timelines=postgres.new_database()
        ) as brokers,
    ):
        with Timeline(address(brokers, 1), "reminders") as first:
            first.create()
            done: Counter[bytes] = Counter()
            workers = [threading.Thread(target=work, args=(address(brokers, number), done)) for number in (2, 3)]
            for worker in workers:
                worker.start()
            tidemill = CommandLine(brokers.bootstrap, capsys, monkeypatch)

            def serving() -> list[int]:
                rows = tidemill.fine("cluster", "choose", "reminders", "--json").json()
                return [row["broker"] for row in rows if row["consumers"]]

            eventually(lambda: sorted(serving()) == [2, 3], "the others do not hear of the consumers")
            chosen = tidemill.fine("cluster", "choose", "reminders", "--json").json()
            assert [row["broker"] for row in chosen] == [2, 3, 1], "who serves it already comes first"
            first.schedule([Message(b"%d" % number, due=time.time() + 0.5) for number in range(MESSAGES)])
            for worker in workers:
                worker.join(WAIT_S)
        assert done == Counter({b"%d" % number: 1 for number in range(MESSAGES)})


def test_two_brokers_share_a_timeline_out_and_one_takes_over_when_the_other_is_killed() -> None:
    with (
        running_postgres() as postgres,
        running_brokers(2, grpc="127.0.0.1:0", timelines=postgres.new_database()) as brokers,
        Timeline(address(brokers, 1), "reminders") as first,
    ):
        first.create(window_ms=1_000, lease_ms=3_000)
        consumers = {number: Consumers(address(brokers, number)) for number in (1, 2)}
        for each in consumers.values():
            each.start()
        eventually(lambda: len(brokers.keys("consumers/reminders/")) == 4, "not all consumers are registered")
        time.sleep(2)  # a window ends: every consumer gets buckets
        start = time.time() + 0.5
        bodies = [b"%d" % number for number in range(200)]
        first.schedule([Message(body, due=start + number / 40) for number, body in enumerate(bodies)])
        eventually(lambda: sum(len(each.done) for each in consumers.values()) >= 80, "messages do not come")
        together = Counter(consumers[1].done) + Counter(consumers[2].done)
        assert set(together.values()) == {1}, "a message was delivered twice"
        assert all(len(each.done) > 20 for each in consumers.values()), "one broker delivered nearly everything"
        brokers.kill(2)
        completed = list(consumers[2].done)
        eventually(
            lambda: set(consumers[1].done) | set(completed) | consumers[2].in_doubt >= set(bodies),
            "the rest is not delivered",
            within_s=30,
        )
        eventually(lambda: len(brokers.keys("consumers/reminders/")) == 2, "the lost broker's consumers stay")
        for each in consumers.values():
            each.stop()
        again = Counter(consumers[1].done) + Counter(completed)
        assert {body for body, count in again.items() if count > 1} <= consumers[2].in_doubt
        assert not consumers[1].early
        assert not consumers[2].early


STAYS_MS = 5_000
"""Longer than a window: who comes back is new, and a new consumer waits for the next window."""


class Consumers:
    """Two consumers of one broker, in two racks, and what they have completed."""

    def __init__(self, where: str) -> None:
        self.done: list[bytes] = []
        self.early: list[bytes] = []
        self.in_doubt: set[bytes] = set()
        """Handled, but the broker did not answer the completion."""
        self._where = where
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(rack,), daemon=True) for rack in "ab"]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _work(self, rack: str) -> None:
        with (
            suppress(TidemillError),
            Timeline(self._where, "reminders", timeout_ms=2_000, follow_hints=False) as timeline,
        ):
            timeline.create(window_ms=1_000, lease_ms=3_000)
            while not self._stopping.is_set():
                for lease in timeline.work(rack=rack, idle_ms=STAYS_MS):
                    if time.time() < lease.due.timestamp():
                        self.early.append(lease.body)
                    self.in_doubt.add(lease.body)
                    lease.complete()
                    self.in_doubt.discard(lease.body)
                    self.done.append(lease.body)
                    if self._stopping.is_set():
                        break


def address(brokers: Brokers, number: int) -> str:
    return str(brokers.servers[number]["grpc"])


def work(where: str, done: "Counter[bytes]") -> None:
    with Timeline(where, "reminders", follow_hints=False) as timeline:
        timeline.create()  # a broker hears of what others created after a while; who creates it again need not wait
        for lease in timeline.work(idle_ms=6_000):
            done[lease.body] += 1
            lease.complete()
