"""`tidemill` as a process of its own: pipes, terminals, signals, shells, and brokers that are not there."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.integration.parallel import interrupt
from tests.support.command_line import CommandLine
from tests.support.waiting import eventually

from tidemill.cli import connection
from tidemill.testing import Broker

FAILED, WRONG_USE = 1, 2
WAIT_S = 120
PROGRAM = (sys.executable, "-m", "tidemill")


def environ(broker: Broker, **more: str) -> dict[str, str]:
    return os.environ | {"TIDEMILL_BOOTSTRAP": broker.bootstrap_servers, "COLUMNS": "100", **more}


def run(env: Mapping[str, str], *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *words], env=env, input=stdin, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list"],
        ["topic", "create", "orders"],
        ["produce", "orders", "-m", "x"],
        ["consume", "orders"],
        ["consume", "orders", "--exec", "cat"],
        ["group", "list"],
        ["group", "describe", "mailer"],
        ["group", "delete", "mailer", "--yes"],
    ],
)
def test_a_missing_broker_is_reported_at_once(tidemill: CommandLine, words: list[str]) -> None:
    said = tidemill.refused(FAILED, *words, "--bootstrap", "127.0.0.1:1")
    assert said == "no broker answers at 127.0.0.1:1; start one with: tidemill serve"


def test_one_of_several_brokers_is_enough(tidemill: CommandLine, cli_broker: Broker) -> None:
    tidemill.fine("topic", "list", "--bootstrap", f"127.0.0.1:1,{cli_broker.bootstrap_servers}")


def test_a_silent_broker_is_skipped(tidemill: CommandLine, cli_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "GREET_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}"
        tidemill.fine("topic", "list", "--bootstrap", f"{name},{cli_broker.bootstrap_servers}")
        monkeypatch.setattr(connection, "TIMEOUT_S", 0.2)
        assert f"{name}: timed out before its first response" in tidemill.refused(
            FAILED, "topic", "list", "--bootstrap", name
        )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["topic", "list", "--json"], 0, ""),
        (["timeline", "list", "--json"], 0, ""),
        (["sql", "DROP TABLE x"], FAILED, "error: only SELECT is allowed; SQL cannot change anything\n"),
    ],
)
def test_the_proxy_of_the_web_is_not_asked(cli_broker: Broker, words: list[str], code: int, said: str) -> None:
    env = environ(cli_broker, http_proxy="http://127.0.0.1:1", no_proxy="", NO_PROXY="")
    env |= {
        "TIDEMILL_BOOTSTRAP_GRPC": cli_broker.grpc,
        "TIDEMILL_BOOTSTRAP_HTTP": cli_broker.http.removeprefix("http://"),
    }
    ran = run(env, *words)
    assert (ran.returncode, ran.stderr) == (code, said)


def test_an_address_that_is_none(tidemill: CommandLine) -> None:
    assert "'nowhere' is not host:port" in tidemill.refused(WRONG_USE, "topic", "list", "-b", "nowhere")


def test_exit_codes_and_streams_of_the_program(cli_broker: Broker) -> None:
    env = environ(cli_broker)
    ran = run(env, "produce", "pipes", stdin="a\nb\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "pipes partition 0 offset 0\npipes partition 0 offset 1\n"
    ran = run(env, "consume", "nothing")
    assert (ran.returncode, ran.stdout) == (FAILED, "")
    assert ran.stderr.count("\n") == 1
    assert run(env, "consume").returncode == WRONG_USE


def test_a_locale_without_unicode(cli_broker: Broker) -> None:
    env = environ(cli_broker, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert run(env, "produce", "plain", "-m", "th\u00e9 \u2615").returncode == 0
    assert run(environ(cli_broker), "consume", "plain", "--from-beginning").stdout == "th\u00e9 \u2615\n"
    refused = run(env, "topic", "create", "th\u00e9")
    assert (refused.returncode, refused.stderr.partition(":")[2][:15]) == (FAILED, " create th\\xe9:")
    [reported] = json.loads(
        run(env, "group", "reset-offsets", "th\u00e9", "--topic", "plain", "--to-latest", "--json").stdout
    )
    assert reported["to"] == 1
    assert run(env, "group", "list", "--json").stdout.isascii()
    assert "th\u00e9" in [each["group"] for each in json.loads(run(env, "group", "list", "--json").stdout)["groups"]]


def test_a_reader_that_goes_away(cli_broker: Broker) -> None:
    env = environ(cli_broker)
    run(env, "produce", "long", stdin="x\n" * 50_000)
    line = f"'{sys.executable}' -m tidemill consume long --from-beginning | head -1"
    ran = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.stdout == "x\n"
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "streams", "code", "said"),
    [
        ("--help", ">&-", 0, ""),
        ("topic list --json", ">&-", 0, ""),
        ("topic list", "2>&-", 0, ""),
        ("frobnicate", "2>&-", WRONG_USE, ""),
        ("--help", ">/dev/full", FAILED, "error: No space left on device\n"),
        ("topic list --json", ">/dev/full", FAILED, "error: No space left on device\n"),
        ("sql --tables", ">/dev/full", FAILED, "error: No space left on device\n"),
    ],
)
def test_output_that_cannot_be_written(cli_broker: Broker, words: str, streams: str, code: int, said: str) -> None:
    line = f"'{sys.executable}' -m tidemill {words} {streams}"
    ran = subprocess.run(
        ["bash", "-c", line], env=environ(cli_broker), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (ran.returncode, ran.stderr) == (code, said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("produce silent", 0, ""),
        (
            "topic delete long",
            WRONG_USE,
            "error: cannot ask for confirmation without a terminal; add --yes to confirm\n",
        ),
        ("sql", WRONG_USE, "error: there is no query; "),
        ("schedule x --in 5s --id one", WRONG_USE, "error: --id names one message; there are 0\n"),
    ],
)
def test_a_closed_input_is_empty(cli_broker: Broker, words: str, code: int, said: str) -> None:
    line = f"'{sys.executable}' -m tidemill {words} <&-"
    ran = subprocess.run(
        ["bash", "-c", line], env=environ(cli_broker), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ran.returncode == code
    assert ran.stderr.startswith(said)
    assert ran.stderr.count("\n") <= 1


@pytest.mark.parametrize("words", [[], ["--group", "followers"]])
def test_ctrl_c_ends_a_reader_in_order(cli_broker: Broker, words: list[str]) -> None:
    env = environ(cli_broker)
    run(env, "produce", "endless", "-m", "x")
    words = words or ["--from-beginning", "--follow"]
    with subprocess.Popen(
        [*PROGRAM, "consume", "endless", *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "x\n"
        reader.send_signal(signal.SIGINT)
        _, errors = reader.communicate(timeout=WAIT_S)
    assert (reader.returncode, errors) == (0, "")


def test_tables_on_a_terminal(cli_broker: Broker) -> None:
    env = environ(cli_broker, TERM="xterm", PYTHONIOENCODING="utf-8")
    run(env, "topic", "create", "seen", "-p", "2")
    shown = on_a_terminal(env, "topic", "describe", "seen")
    assert "partition" in shown
    assert "─" in shown


def test_records_that_are_typed_are_not_drawn_over(cli_broker: Broker) -> None:
    env = environ(cli_broker, TERM="xterm", PYTHONIOENCODING="utf-8")
    shown = on_a_terminal(env, "produce", "typed", typed=b"hello\nworld\n\x04")
    assert "producing to" not in shown
    assert shown.splitlines()[-2:] == ["typed partition 0 offset 0", "typed partition 0 offset 1"]


def on_a_terminal(env: Mapping[str, str], *words: str, typed: bytes = b"") -> str:
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    child = subprocess.Popen([*PROGRAM, *words], env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(ours, 65_536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not piece:
                break
            shown += piece
        assert child.wait(WAIT_S) == 0
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        os.close(ours)
    return shown.decode()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["tidemill", "to"], {"topic"}),
        (["tidemill", "topic", "de"], {"describe", "delete"}),
        (["tidemill", "consume", "--from-b"], {"--from-beginning"}),
        (["tidemill", "timeline", "sch"], {"schedule"}),
    ],
)
def test_the_shell_completes(cli_broker: Broker, typed: list[str], offered: set[str]) -> None:
    asked = {"_TIDEMILL_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(typed), "COMP_CWORD": str(len(typed) - 1)}
    ran = run(environ(cli_broker, **asked))
    assert set(ran.stdout.split()) == offered


def test_completion_is_installed_for_bash(cli_broker: Broker, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "SHELL": "/bin/bash", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = run(environ(cli_broker, **home), "--show-completion", "bash")
    assert "complete -o default -F _tidemill_completion tidemill" in ran.stdout, ran


def test_ctrl_c_waits_for_commands_and_a_second_ends_them(
    tidemill: CommandLine, cli_broker: Broker, tmp_path: Path
) -> None:
    """The signals go to the whole group of processes, as those of a terminal."""
    tidemill.fine("produce", "endless", "-m", "x")
    words = ("consume", "endless", "--exec", f"echo began >> {tmp_path}/marks; sleep 600")
    process = subprocess.Popen(
        [*PROGRAM, *words],
        env=environ(cli_broker),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        eventually(lambda: (tmp_path / "marks").exists() or process.poll() is not None)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1)  # two signals at the same moment are one
        assert process.poll() is None
        _, errors = interrupt(process)  # until the command has closed its end of the pipe too
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert errors.splitlines()[-1] == "0 records handled, 0 tried again, 0 dead letters"
    assert (tmp_path / "marks").read_text() == "began\n"


def test_doctor(tidemill: CommandLine, cli_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_KAFKA", cli_broker.bootstrap_servers)
    shown = tidemill.fine("doctor", "--data-dir", str(tmp_path / "not" / "yet"))
    assert shown.lines[0].split() == ["CHECK", "STATE", "FOUND", "ADVICE"]
    checks = {
        row["check"]: row["state"] for row in tidemill.fine("doctor", "--data-dir", str(tmp_path), "--json").json()
    }
    assert checks["python"] == "fine"
    assert checks["kafka listener"] == "note"  # the broker of this test
    assert {"settings", "grpc listener", "http listener", "disk", "open files", "java", "extra postgres"} <= set(checks)


def test_doctor_looks_at_the_settings_that_a_broker_would_have(
    tidemill: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def findings() -> dict[str, tuple[str, str]]:
        rows = json.loads(tidemill("doctor", "--json").out)
        return {row["check"]: (row["state"], row["found"]) for row in rows}

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMILL_BOOTSTRAP")
    file = tmp_path / "tidemill.toml"
    file.write_text('kafak = "127.0.0.1:0"\n')
    assert findings()["settings"] == ("wrong", "tidemill.toml: unknown key 'kafak'; did you mean kafka?")
    file.write_text(
        'kafka = "127.0.0.1:0"\ngrpc = "nowhere.invalid:1"\nhttp = "none"\n'
        'timelines = "postgresql://ann:secret@127.0.0.1:1/shop"\n'
    )
    found = findings()
    assert found["settings"] == ("fine", "tidemill.toml")
    assert found["kafka listener"] == ("fine", "127.0.0.1:0 is free")
    assert found["grpc listener"][0] == "wrong"
    assert found["http listener"] == ("fine", "disabled")
    assert found["postgres 127.0.0.1:1/shop"][0] == "wrong"
    assert "grpc listener, logins, postgres 127.0.0.1:1/shop: see the advice above" in tidemill.refused(
        FAILED, "doctor"
    )


@pytest.mark.parametrize(
    ("said", "state", "found"),
    [
        ('openjdk version "21.0.4" 2024-07-16', "fine", 'version "21.0.4"'),
        ('java version "1.8.0_202"', "note", 'version "1.8.0_202"'),
        ("no idea", "note", "of unknown version"),
        (None, "note", "not found"),
    ],
)
def test_doctor_looks_for_java(
    tidemill: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, state: str, found: str
) -> None:
    if said is not None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    rows = tidemill.fine("doctor", "--data-dir", str(tmp_path), "--json").json()
    [java] = [row for row in rows if row["check"] == "java"]
    assert (java["state"], java["found"]) == (state, found)
    assert ("Java 17" in java["advice"]) == (state != "fine")
    assert ("which has no bin/java; Spark needs" in java["advice"]) == (said is None)
