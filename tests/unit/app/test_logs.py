"""One form for all that is logged, ours and the libraries'."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from tidemill.app import logs
from tidemill.broker.recent_log import RecentLog


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, logs._Forward)]


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_lines_of_ours_and_of_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.forward_libraries()
    structlog.get_logger("tidemill.test").info("hello", size=3)
    structlog.get_logger("tidemill.test").debug("too quiet")
    logging.getLogger("library").warning("number %d", 7)
    ours, theirs = lines(capsys)
    assert (ours["event"], ours["level"], ours["logger"], ours["size"]) == ("hello", "info", "tidemill.test", 3)
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("number 7", "warning", "library")
    assert list(ours)[:4] == ["timestamp", "level", "logger", "event"]


def test_errors_carry_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("error", "json")
    logs.forward_libraries()
    try:
        int("the reason")
    except ValueError:
        structlog.get_logger("tidemill.test").exception("it failed")
        logging.getLogger("library").exception("theirs too")
    found = lines(capsys)
    assert [line["event"] for line in found] == ["it failed", "theirs too"]
    assert all("the reason" in str(line["exception"]) for line in found)


@pytest.mark.parametrize("style", ["json", "human"])
def test_warnings_and_errors_are_kept_for_the_console(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    kept = RecentLog()
    monkeypatch.setattr(logs, "RECENT", kept)
    logs.configure("debug", style)
    logs.forward_libraries()
    logger = structlog.get_logger("tidemill.test")
    logger.debug("quiet")
    logger.info("quiet")
    logger.warning("slow", client_id="<script>", bytes=3)
    try:
        int("the reason")
    except ValueError:
        secret = "a local variable"  # noqa: F841 -- must not be kept
        logger.exception("failed", topic="orders")
    logging.getLogger("library").warning("number %d", 7)
    capsys.readouterr()
    library, failed, slow = kept.newest()
    assert (slow.text.level, slow.text.logger, slow.text.event) == ("warning", "tidemill.test", "slow")
    assert slow.text.fields == (("client_id", "<script>"), ("bytes", "3"))
    assert (failed.text.level, failed.text.fields) == ("error", (("topic", "orders"),))
    assert failed.text.traceback.rstrip().endswith("ValueError: invalid literal for int() with base 10: 'the reason'")
    assert "a local variable" not in failed.text.traceback
    assert (library.text.logger, library.text.event) == ("library", "number 7")


def test_people_get_words(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "human")
    structlog.get_logger("tidemill.test").info("hello", size=3)
    shown = capsys.readouterr().err
    assert "hello" in shown
    assert not shown.startswith("{")


@pytest.mark.parametrize(
    ("surroundings", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colors_are_for_terminals_that_want_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, surroundings: dict[str, str], colored: bool
) -> None:
    for name, value in {"NO_COLOR": "", "TERM": "xterm", **surroundings}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    logs.configure("info", "auto")
    structlog.get_logger("tidemill.test").info("hello")
    assert ("\x1b[" in capsys.readouterr().err) == colored


def test_a_broker_starts_without_rich_and_shows_tracebacks_with_it() -> None:
    program = """
import sys
from tidemill.app.startup import import_structlog
import_structlog()
import structlog
from tidemill.app import logs
logs.configure("info", "human")
structlog.get_logger("tidemill.test").info("fine")
assert "rich" not in sys.modules
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger("tidemill.test").exception("broken")
assert "rich" in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "most recent call last" in result.stderr
    assert "ZeroDivisionError" in result.stderr
