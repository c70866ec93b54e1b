"""Runs `tidemill` commands inside the test's process, and captures exit code, standard output and standard error."""

import io
import json
import sys
from typing import Any, NamedTuple

import pytest

from tidemill.cli.main import main


class Result(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """The `tidemill` command with a broker to connect to."""

    def __init__(self, bootstrap: str, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self._capture, self._patch = capture, patch
        patch.setenv("TIDEMILL_BOOTSTRAP", bootstrap)
        patch.setenv("COLUMNS", "120")

    def __call__(self, *words: str, stdin: bytes = b"") -> Result:
        """Run one command to its end, whether it fails or not."""
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capture.readouterr()
        code = main(words)
        return Result(code, *self._capture.readouterr())

    def fine(self, *words: str, stdin: bytes = b"") -> Result:
        """Run a command that must succeed."""
        result = self(*words, stdin=stdin)
        assert result.code == 0, result
        return result

    def refused(self, code: int, *words: str, stdin: bytes = b"") -> str:
        """Run a command that must fail with this exit code, and return its one line."""
        result = self(*words, stdin=stdin)
        assert result.code == code, result
        assert result.err.startswith("error: "), result
        assert result.err.count("\n") == 1, result
        return result.err.removeprefix("error: ").rstrip("\n")

    def refused_after_remarks(self, code: int, *words: str) -> str:
        """Like `refused`, for a command that prints other lines before it fails. Returns the last line."""
        result = self(*words)
        assert result.code == code, result
        assert "Traceback" not in result.err, result
        last = result.err.splitlines()[-1]
        assert last.startswith("error: "), result
        return last
