"""Recurring messages on real brokers: from Python, the command line and the JSON API, and after a kill."""

import asyncio
import json
import random
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tidemill import AsyncTimeline, Message, Timeline
from tidemill.cli.main import main
from tidemill.client.timelines import RecurrenceRule
from tidemill.model.timeline_errors import BadRecurrence, TimelineError
from tidemill.testing import Broker

EVERY_S = 1
SCHEDULES = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_a_schedule_is_listed_worked_on_and_cancelled(broker: Broker) -> None:
    with Timeline(broker.grpc, "reports") as reports:
        reports.create()
        (daily,) = reports.schedule([Message(b"daily", id="daily")], cron="0 9 * * 1-5", zone="Europe/Berlin")
        assert (daily.due.hour, daily.due.minute) in {(7, 0), (8, 0)}
        assert daily.due > datetime.now(UTC)
        start = datetime.now(UTC) - timedelta(seconds=0.5)
        rule = RecurrenceRule(every=timedelta(seconds=1), missed="skip", count=3, until=start + timedelta(days=1))
        reports.schedule([Message(b"tick", start, "tick", recurrence=rule)])
        listed = {one.id: one.recurrence for one in reports.messages()}
        assert listed["daily"] == RecurrenceRule(cron="0 9 * * 1-5", zone="Europe/Berlin")
        tick = listed["tick"]
        assert tick is not None
        assert (tick.every, tick.missed, tick.count) == (timedelta(seconds=1), "skip", 3)
        dues = []
        for lease in reports.work(idle_ms=2_500):
            dues.append(lease.due)
            lease.complete()
        assert len(dues) == 3
        assert all(later - earlier >= timedelta(seconds=1) for earlier, later in pairwise(dues))
        assert [one.id for one in reports.messages()] == ["daily"]
        (again,) = reports.schedule([Message(b"daily", id="daily")], every=5)
        assert again.exists_already
        reports.cancel("daily")
        assert reports.count() == 0


def test_wrong_recurrences_are_refused_and_nothing_is_scheduled(broker: Broker) -> None:
    with Timeline(broker.grpc, "wrong") as wrong:
        wrong.create()
        for keywords, reason in (
            ({"cron": "0 9 30 2 *"}, "Bad day-of-month"),
            ({"cron": "0 9 * * *", "zone": "Nowhere/City"}, "is unknown"),
            ({"every": 0.5}, "1000 to"),
            ({"every": -1}, "1000 to"),
            ({"every": 1e30}, "not an interval"),
            ({"every": 5, "cron": "* * * * *"}, "either cron or every"),
            ({"every": 5, "missed": "never"}, "'never' is not one of skip, once, all"),
            ({"every": 5, "count": 0}, "at least 1"),
            ({"every": 5, "until": time.time() - 60}, "until its end"),
            ({"zone": "Europe/Berlin"}, "either cron or every"),
        ):
            with pytest.raises(BadRecurrence, match=reason):
                wrong.schedule([Message(b"fine", time.time()), Message(b"")], **keywords)
        with pytest.raises(TypeError, match="needs its due time, or a recurrence"):
            wrong.schedule([Message(b"")])
        assert wrong.count() == 0
        many = wrong.schedule([Message(b"%d" % number) for number in range(250)], cron="0 9 * * *")
        assert len(set(many)) == wrong.count() == 250


def test_the_command_line_and_the_json_api(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", broker.grpc)

    def run(*words: str) -> tuple[int, str, str]:
        return main(list(words)), *capsys.readouterr()

    assert run("timeline", "create", "jobs")[0] == 0
    weekdays = ("--cron", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--id", "daily")
    code, out, err = run("schedule", "jobs", *weekdays, "--missed", "all", "write the report")
    assert (code, out, err.startswith("first due ")) == (0, "daily\n", True)
    assert run("schedule", "jobs", "--every", "1h30m", "--count", "3", "--in", "1d", "--id", "beat", "x")[0] == 0
    shown = run("timeline", "list", "jobs")[1]
    assert "0 9 * * 1-5 Europe/Berlin, missed all" in shown
    assert "every 1h30m, 3 left" in shown
    again = run("schedule", "jobs", *weekdays, "again")
    assert again[0] == 0
    assert "cancel it first: tidemill timeline cancel jobs daily" in again[2]
    (listed,) = [
        one for one in json.loads(run("timeline", "list", "jobs", "--json")[1])["messages"] if one["id"] == "daily"
    ]
    path = f"{broker.http}/api/v1/timelines/jobs/messages/daily"
    with urllib.request.urlopen(path) as answer:
        found = json.load(answer)
    expected = {
        "cron": "0 9 * * 1-5",
        "zone": "Europe/Berlin",
        "every_ms": None,
        "missed": "all",
        "until_ms": None,
        "left": None,
    }
    assert found["recurrence"] == listed["recurrence"] == expected
    page = f"{broker.http}/timelines/jobs/messages/daily"
    with urllib.request.urlopen(page) as answer:
        assert "<code>0 9 * * 1-5</code>, Europe/Berlin" in answer.read().decode()
    for words, error in (
        (("--every", "5m", "--cron", "0 9 * * *"), "give either --cron or --every"),
        (("--zone", "UTC", "--in", "5s"), "--zone, --missed, --until and --count belong to a recurrence"),
        (("--every", "10ms"), "an interval is 1000 to"),
        (("--cron", "often"), "cron expression 'often': Wrong number of fields"),
    ):
        code, _, err = run("schedule", "jobs", *words, "x")
        assert code > 0
        assert error in err


async def test_a_killed_broker_leaves_one_next_occurrence_and_loses_none() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    delivered: defaultdict[str, set[int]] = defaultdict(set)

    with Broker(process=True) as broker:
        async with AsyncTimeline(broker.grpc, "line") as line:
            await line.create(lease_ms=1_500)
            rule = RecurrenceRule(every=EVERY_S, missed="all")
            await line.schedule([Message(b"", id=f"r{number}", recurrence=rule) for number in range(SCHEDULES)])

            async def work() -> None:
                async for lease in line.work():
                    delivered[lease.id].add(round(lease.due.timestamp() * 1_000))
                    if rng.random() < 0.8:
                        with suppress(TimelineError):  # the lease has ended, or was completed before the kill
                            await lease.complete()

            worker = asyncio.create_task(work())
            for _ in range(4):
                await asyncio.sleep(rng.uniform(0.3, 1.2))
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.restart)
            await asyncio.sleep(2)
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            left = await line.messages()
            assert sorted(one.id for one in left) == [f"r{number}" for number in range(SCHEDULES)]
            for one in left:
                # After a lease that ended, `due` is that end.
                waiting = set() if one.attempts else {round(one.due.timestamp() * 1_000)}
                dues = sorted(delivered[one.id] | waiting)
                assert len(dues) > 1
                assert all(later - earlier == EVERY_S * 1_000 for earlier, later in pairwise(dues)), one.id
