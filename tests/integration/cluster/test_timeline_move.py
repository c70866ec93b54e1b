"""Brokers with timelines of their own start with replicated ones: everything moves, also when brokers are killed."""

import time
from contextlib import suppress

import pytest
from tests.integration.cluster.test_scheduling import create, now_ms, send, values
from tests.integration.cluster.test_timelines import address
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.command_line import CommandLine
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.timelines.core.errors import UnknownTimeline

SETTINGS = {"tidemill.tend.interval.ms": "200", "tidemill.waiting.topic.num.partitions": "2"}
MESSAGES = 1_500
RECORDS = 90
NUMBERS = (1, 2, 3)
LATER_S = 3_600.0


def write(brokers: Brokers) -> None:
    """Each broker has some messages of one timeline; two of them have another one with different settings."""
    for number in NUMBERS:
        with Timeline(address(brokers, number), "reminders") as timeline:
            timeline.create(lease_ms=5_000)
            names = [f"b{number}-{place}" for place in range(MESSAGES)]
            timeline.schedule([Message(b"later", due=time.time() + LATER_S, id=one) for one in names])
    for number in (2, 3):
        with Timeline(address(brokers, number), "other") as timeline:
            timeline.create(lease_ms=1_000 * number)
            timeline.schedule([Message(b"later", due=time.time() + LATER_S, id=f"other{number}")])


def count(brokers: Brokers, number: int, name: str) -> int:
    """The messages of a timeline; none while the move has not created it."""
    with suppress(UnknownTimeline), Timeline(address(brokers, number), name, timeout_ms=30_000) as timeline:
        return timeline.count()
    return 0


def test_timelines_and_waiting_records_move_although_brokers_are_killed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_brokers(3, SETTINGS, grpc="127.0.0.1:0", timelines="sqlite:") as brokers:
        tidemill = CommandLine(brokers.bootstrap, capsys, monkeypatch)
        create(brokers, "later", copies=3)
        start_ms = now_ms() + 2_000
        send(brokers, "later", lambda number: start_ms + number * 50, RECORDS)
        write(brokers)
        eventually(lambda: now_ms() > start_ms + 500, "time passes")  # some records are due, and on their way
        for number in NUMBERS:
            brokers.kill(number)
        for number in NUMBERS:
            brokers.start(number, timelines="replicated:")
        brokers.kill(1)
        brokers.start(1, timelines="replicated:")
        eventually(lambda: count(brokers, 3, "reminders") == 3 * MESSAGES, "messages are missing", within_s=90)

        def refused() -> list[int]:
            rows = tidemill.fine("cluster", "status", "--json").json()["brokers"]
            return [row["broker"] for row in rows if any("'other' has other settings" in one for one in row["reasons"])]

        eventually(lambda: len(refused()) == 1, "the conflict is not reported")
        [late] = refused()
        assert count(brokers, 1, "other") == 1
        tidemill.fine("timeline", "alter", "other", "--lease-ms", str(1_000 * late), "--address", address(brokers, 1))
        eventually(lambda: count(brokers, 1, "other") == 2, "it does not go on", within_s=30)
        eventually(lambda: not refused(), "the conflict is still reported")
        for number in NUMBERS:
            home = brokers.home(number)
            eventually(lambda: not (home / "timelines.db").exists(), "the file has its name")  # noqa: B023 -- used at once
            assert len(list(home.glob("timelines.db.moved-*T*Z"))) == 1
        found = values(brokers, "later", RECORDS)
        assert sorted(int(value) for value, _, _ in found) == list(range(RECORDS))
        assert all(stamp >= due_ms for _, due_ms, stamp in found), "a record came early"
        assert count(brokers, 2, "reminders") == 3 * MESSAGES
