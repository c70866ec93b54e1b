"""Follows pages whose commands need Spark, in this process on the shared session."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.doc_reader import Reader

from tidemill.cli.main import main
from tidemill.pipelines.spark import remote
from tidemill.testing import Broker

OURS = re.compile(r"tidemill [^|<>;&]*")


class SparkReader(Reader):
    """Runs our commands in this process, because starting a session takes longer than all of the commands."""

    def __init__(self, broker: Broker, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(broker, folder)
        self._capsys = capsys

    def _run(self, words: list[str]) -> "subprocess.CompletedProcess[str]":
        line = words[-1]
        if not OURS.fullmatch(line):
            return super()._run(words)
        self._capsys.readouterr()
        code = main(shlex.split(line)[1:])
        out, err = self._capsys.readouterr()
        return subprocess.CompletedProcess(words, code, out, err)


def lend(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands use this session."""

    @contextmanager
    def session_that_is_there(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(remote, "session_for", session_that_is_there)
