"""Timelines on PostgreSQL are served by every broker of a cluster."""

import threading
import time
from collections import Counter

import pytest
from tests.cluster.brokers import WAIT_S, Brokers, eventually, running_brokers
from tests.integration.command_line import CommandLine
from tests.postgres import running_postgres

from tidemill import Message, Timeline

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


def address(brokers: Brokers, number: int) -> str:
    return str(brokers.doors[number]["grpc"])


def work(where: str, done: "Counter[bytes]") -> None:
    with Timeline(where, "reminders") as timeline:
        timeline.create()  # a broker hears of what others created after a while; who creates it again need not wait
        for lease in timeline.work(idle_ms=6_000):
            done[lease.body] += 1
            lease.complete()
