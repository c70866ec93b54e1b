"""The commands of the guide to clusters print what the guide says, on a cluster that is set up as the guide says."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.command_line import CommandLine
from tests.support.doc_pages import ROOT, blocks, commands
from tests.support.doc_reader import NOT_RUN, Reader
from tests.support.waiting import eventually

VICTIM = 2


class Cluster(NamedTuple):
    """Where the pages' addresses are."""

    bootstrap_servers: str
    grpc: str = "127.0.0.1:1"
    http: str = "http://127.0.0.1:1"


def test_the_guide_does_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_brokers(racks=False) as brokers:
        reader = Reader(Cluster(brokers.bootstrap), tmp_path)
        tidemill = CommandLine(brokers.bootstrap, capsys, monkeypatch)
        done = []
        for block in blocks(ROOT / "docs" / "guides" / "cluster.md"):
            for command in commands(block) if block.kind == "console" else ():
                word = command.line.split()[0]
                if word in {"kill", "sleep"}:
                    done.append(word)
                    _as_the_reader_does(word, brokers, tidemill)
                elif not command.line.startswith((*NOT_RUN, "tidemill cluster up", "export")):
                    reader.run_command(command.line, command.printed)
        assert done == ["kill", "sleep"]


def test_the_guide_to_timelines_does_what_it_says(tmp_path: Path) -> None:
    with running_brokers(racks=False, grpc="127.0.0.1:0", timelines="replicated:") as brokers:
        reader = Reader(Cluster(brokers.bootstrap, str(brokers.servers[1]["grpc"])), tmp_path)
        killed = False
        for block in blocks(ROOT / "docs" / "guides" / "replicated-timelines.md"):
            for command in commands(block) if block.kind == "console" else ():
                if command.line.startswith("kill"):
                    brokers.kill(VICTIM)
                    killed = True
                elif not command.line.startswith("tidemill cluster up"):
                    reader.run_command(command.line, command.printed)
        assert killed


def _as_the_reader_does(word: str, brokers: Brokers, tidemill: CommandLine) -> None:
    """A broker is killed, and its session ends; it comes back, and is in sync again."""
    if word == "kill":
        brokers.kill(VICTIM)
    else:
        brokers.start(VICTIM)

    def settled() -> bool:
        status = json.loads(tidemill.fine("cluster", "status", "--json").out)
        there = {row["broker"] for row in status["brokers"] if row["state"] == "healthy"}
        missing = status["under_replicated"]
        return status["without_leader"] == 0 and (
            (word == "kill" and VICTIM not in there and missing > 0)
            or (word == "sleep" and VICTIM in there and missing == 0)
        )

    eventually(settled, f"the cluster did not settle after {word}")
