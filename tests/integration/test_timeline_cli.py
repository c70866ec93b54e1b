"""`tidemill timeline` and `tidemill schedule` against a real broker."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.waiting import eventually

from tidemill.cli.main import main
from tidemill.cli.timeline_messages import bar_lines
from tidemill.client.timelines import Bar, Message, Timeline
from tidemill.testing import Broker

Run = Callable[..., tuple[int, str, str]]
XMAS_MS = 4_101_818_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"timelines": "memory:"}) as running:
        yield running


@pytest.fixture
def run(broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; exit code, standard output, standard error."""
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", broker.grpc)

    def command(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        reported = capsys.readouterr()
        return code, reported.out, reported.err

    return command


@pytest.fixture
def name(run: Run) -> str:
    """A new timeline."""
    created = f"t-{uuid4().hex[:8]}"
    assert run("timeline", "create", created, "--lease-ms", "30000") == (0, f"created {created}\n", "")
    return created


def test_a_timeline_that_exists_already_is_not_created(run: Run, name: str) -> None:
    same = ("timeline", "create", name, "--lease-ms", "30000")
    assert run(*same) == (1, "", f"error: timeline '{name}' already exists; use --if-not-exists to accept it\n")
    assert run(*same, "--if-not-exists") == (0, f"{name} already exists\n", "")
    assert json.loads(run(*same, "--if-not-exists", "--json")[1])["created"] is False
    assert json.loads(run("timeline", "create", f"{name}-2", "--json")[1])["created"] is True
    code, _, err = run("timeline", "create", name, "--lease-ms", "1000", "--if-not-exists")
    assert (code, "exists with other settings" in err) == (1, True)


def test_schedule_and_work(run: Run, name: str) -> None:
    assert run("schedule", name, "--in", "1ms", "--id", "first", "hello")[1] == "first\n"
    code, out, _ = run("timeline", "schedule", name, "--in", "300ms", "--key", "user-7", "tea is ready")
    assert code == 0
    assert re.fullmatch(r"[0-9a-f]{32}\n", out)
    code, out, err = run("timeline", "work", name, "--count", "2")
    assert (code, err) == (0, "completed 2 messages\n")
    first, second = out.splitlines()
    assert "hello" in first
    assert re.search(r"\d+\.\d ms late  user-7  tea is ready", second)
    assert run("timeline", "count", name)[1] == "0\n"


def test_work_ends_when_idle(run: Run, name: str) -> None:
    assert run("timeline", "work", name, "--idle", "100ms") == (0, "", "completed 0 messages\n")


def test_work_in_json(run: Run, name: str) -> None:
    run("schedule", name, "--in", "1ms", "--id", "m", "x")
    code, out, _ = run("timeline", "work", name, "--count", "1", "--idle", "60s", "--json")
    assert code == 0
    row = json.loads(out)
    assert (row["id"], row["body"], row["attempts"]) == ("m", "x", 1)
    assert row["late_ms"] >= 0


def test_list_count_describe_cancel_move(run: Run, name: str) -> None:
    run("timeline", "schedule", name, "--at", "2099-12-24T18:00:00Z", "--id", "xmas", "cook")
    rows = json.loads(run("timeline", "list", name, "--json")[1])["messages"]
    assert [(row["id"], row["due_ms"], row["status"]) for row in rows] == [("xmas", XMAS_MS, "waiting")]
    assert "cook" in run("timeline", "list", name)[1]
    assert name in run("timeline", "list")[1]
    assert run("timeline", "count", name, "--from", "2099-12-24", "--to", "2099-12-25")[1] == "1\n"
    assert (
        run("timeline", "count", name, "--status", "leased", "--json")[1] == f'{{"timeline": "{name}", "count": 0}}\n'
    )
    assert "waiting" in run("timeline", "describe", name)[1]
    assert run("timeline", "move", name, "xmas", "--at", "2099-12-25T09:00:00Z")[0] == 0
    moved = json.loads(run("timeline", "list", name, "--json")[1])["messages"]
    assert moved[0]["due_ms"] == XMAS_MS + 15 * 3_600_000
    assert run("timeline", "cancel", name, "xmas")[0] == 0
    assert run("timeline", "cancel", name, "xmas")[0] == 1
    assert run("timeline", "list", name) == (0, "", f"{name} has no such messages\n")


def test_an_id_that_exists_is_reported_and_kept(run: Run, name: str) -> None:
    words = ("schedule", name, "--id", "xmas", "cook", "--at")
    for _ in range(2):  # the same again is no news
        assert run(*words, "2099-12-24T18:00:00Z") == (0, "xmas\n", "")
    code, out, err = run(*words, "2099-12-31T18:00:00Z")
    assert (code, out) == (0, "xmas\n")
    assert "xmas already exists, due 2099-12-24T18:00:00.000Z; nothing changed" in err
    assert f"tidemill timeline move {name} xmas" in err
    reported = json.loads(run(*words, "2099-12-31T18:00:00Z", "--json")[1])
    assert reported == {"ids": ["xmas"], "existing": [{"id": "xmas", "due": "2099-12-24T18:00:00.000Z"}]}
    assert json.loads(run("timeline", "list", name, "--json")[1])["messages"][0]["due_ms"] == XMAS_MS


def test_all_messages_that_cannot_be_cancelled_are_reported(run: Run, name: str) -> None:
    run("schedule", name, "--in", "1h", "--id", "here", "x")
    code, _, err = run("timeline", "cancel", name, "gone", "here", "lost")
    assert code == 1
    assert "gone: " in err
    assert "lost: " in err
    assert "here: " not in err
    assert "1 of 3 succeeded" in err
    assert run("timeline", "count", name)[1] == "0\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("more", "code"), [([], 0), (["--count", "1000"], 130)])  # 130: it did not come to its end
def test_a_stopped_worker_releases_the_messages_that_it_has_not_printed(
    broker: Broker, name: str, number: int, more: list[str], code: int
) -> None:
    total, body = 200, b"x" * 4_000  # far more than fits into a pipe without a reader: the worker stops in the middle
    with Timeline(broker.grpc, name) as timeline:
        timeline.schedule([Message(body, 0.0) for _ in range(total)])
        words = [sys.executable, "-m", "tidemill", "timeline", "work", name, "--address", broker.grpc]
        words += ["--lease-ms", "600000", "--max-in-flight", str(total), *more]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as worker:
            assert worker.stdout is not None
            first = worker.stdout.read(1)  # it has begun to show them
            worker.send_signal(number)
            out, err = worker.communicate(timeout=60)
        shown = (first + out).count(body)
        assert worker.returncode == code
        assert f"completed {shown} message" in err.decode()
        assert 0 < shown < total
        eventually(lambda: timeline.count("leased") == 0)  # long before the leases end
        assert timeline.count("available") == total - shown


def test_histogram(run: Run, name: str) -> None:
    for hour in (10, 10, 12):
        run("schedule", name, "--at", f"2099-01-01T{hour}:30:00Z", "x")
    words = ("timeline", "histogram", name, "--from", "2099-01-01T10:00:00Z", "--to", "2099-01-01T13:00:00Z", "-n", "3")
    code, out, err = run(*words)
    assert (code, err) == (0, "3 messages\n")
    lines = out.splitlines()
    assert [line.split()[-1] for line in lines] == ["2", "0", "1"]
    assert lines[0].count("█") == 2 * lines[2].count("█") > 0
    drawn = json.loads(run(*words, "--json")[1])
    assert (drawn["counts"], drawn["width_ms"], drawn["total"]) == ([2, 0, 1], 3_600_000, 3)
    assert "3 at other times" in run("timeline", "histogram", name)[2]


def test_alter_and_delete(run: Run, name: str) -> None:
    assert run("timeline", "alter", name, "--lease-ms", "1000")[0] == 0
    assert json.loads(run("timeline", "describe", name, "--json")[1])["settings"]["lease_ms"] == "1000"
    assert run("timeline", "alter", name)[0] == 2
    code, _, err = run("timeline", "delete", name)
    assert (code, "--yes" in err) == (2, True)
    assert run("timeline", "delete", name, "--yes") == (0, f"deleted {name}\n", "")


def test_changes_in_json(run: Run, name: str) -> None:
    for one in ("a", "b"):
        run("schedule", name, "--in", "1h", "--id", one, "x")
    moved = json.loads(run("timeline", "move", name, "a", "b", "--at", "2099-12-25T09:00:00.250Z", "--json")[1])
    assert moved == {"timeline": name, "moved": ["a", "b"], "due": "2099-12-25T09:00:00.250Z"}
    assert json.loads(run("timeline", "cancel", name, "a", "--json")[1]) == {"timeline": name, "cancelled": ["a"]}
    deleted = json.loads(run("timeline", "delete", name, "--yes", "--json")[1])
    assert deleted == {"timeline": name, "state": "deleting"}


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("timeline", "count", "never"), 1, "there is no timeline 'never'; create it with: tidemill timeline create"),
        (("timeline", "count", "never", "--status", "asleep"), 2, "'asleep' is not one of 'waiting', 'available'"),
        (("schedule", "x", "--in", "999999999999d", "body"), 1, "is not between 1970 and the year 9999"),
        (("schedule", "x", "--in", "1s", "--id", "", "body"), 1, "omit it to get a generated one"),
        (("timeline", "work", "never"), 1, "there is no timeline 'never'"),
        (("schedule", "x", "body"), 2, "either --in 5s or --at"),
        (("schedule", "x", "--in", "soon", "body"), 2, "is not a duration"),
        (("schedule", "x", "--at", "someday", "body"), 2, "is not a time"),
        (("timeline", "create", "bad name"), 1, "timeline name"),
        (("timeline", "create", "t", "--dealer", "cards"), 1, "is not a valid value of dealer"),
        (("timeline", "histogram", "t", "--to", "2001-01-01"), 2, "--to must be after --from"),
        (("timeline", "nonsense"), 2, "nonsense"),
    ],
)
def test_errors_are_one_line(run: Run, words: tuple[str, ...], code: int, line: str) -> None:
    got, out, err = run(*words)
    assert (got, out) == (code, "")
    assert line in err
    assert err.count("\n") == 1


def test_a_pipeline_says_which_timeline_is_missing_before_it_starts_spark(
    broker: Broker, run: Run, name: str, tmp_path: Path
) -> None:
    assert run("topic", "create", name, "--bootstrap", broker.bootstrap_servers)[0] == 0
    sinks = "sinks: {later: {from: wishes, timeline: never, due: timestamp, body: value}}"
    top = f"name: x\nbroker: {broker.bootstrap_servers}\ntimelines: {broker.grpc}\n"
    spec = f"{top}sources: {{wishes: {{topic: {name}, format: raw}}}}\n{sinks}\n"
    (tmp_path / "pipeline.yml").write_text(spec, encoding="utf-8")
    line = "error: there is no timeline 'never'; create it with: tidemill timeline create never\n"
    assert run("pipeline", "run", str(tmp_path)) == (1, "", line)
    assert not (tmp_path / ".tidemill").exists()


def test_no_broker(run: Run) -> None:
    code, _, err = run("timeline", "count", "x", "--address", "127.0.0.1:1")
    assert code == 1
    assert err == "error: no broker answers at 127.0.0.1:1; start one with: tidemill serve\n"


def test_a_server_other_than_grpc(run: Run, broker: Broker) -> None:
    for command in ("count x", "work x"):
        code, _, err = run("timeline", *command.split(), "--address", broker.bootstrap_servers)
        assert code == 1
        assert "accepts connections but does not answer gRPC calls; use the grpc= address" in err
        assert err.count("\n") == 1
    code, _, err = run("timeline", "count", "x", "--address", "nowhere")
    assert (code, err) == (2, "error: --address: 'nowhere' is not host:port; write for example 127.0.0.1:9092\n")


def test_bars_fit_the_terminal_and_nothing_is_hidden() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    bars = [Bar(start + timedelta(hours=at), count) for at, count in enumerate((0, 1, 1_000_000))]
    lines = bar_lines(bars, 100)
    assert all(len(line) <= 100 for line in lines)
    assert lines[1].split()[1] == "▏"
    assert lines[2].endswith(" 1,000,000")
    plain = bar_lines(bars, 100, unicode=False)
    assert [len(line) for line in plain] == [len(line) for line in lines]
    assert plain[1].split()[1] == "#"
    assert all(line.isascii() for line in plain)
