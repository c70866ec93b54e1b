"""Finds tests that were collected and never reported, because their process ended early.

pytest reports only the other tests, and the second try of `make unit` runs only failed ones. So a test without a result
counts as failed: it is written to the file of `--last-failed`, and the run fails.
"""

from collections.abc import Generator, Iterable

import pytest

# pytest itself reports Ctrl-C, a wrong option and an empty selection. The other tests are not expected to run then.
JUDGED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)


def pytest_configure(config: pytest.Config) -> None:
    """Register in one process only: the one that starts the others, or the single one."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Books())


class Books:
    """The tests without a result."""

    def __init__(self) -> None:
        self.awaited: set[str] = set()
        self._reported = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.awaited = {item.nodeid for item in session.items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """Take the tests of the first process.

        All collect the same, and a replacement collects after results have come in.
        """
        if not self._reported:
            self.awaited, self._reported = set(ids), True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test as finished after its cleanup or failure. A process that dies in a test fails that test."""
        if report.when == "teardown" or report.failed:
            self.awaited.discard(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Add the tests after pytest has stored the failed ones."""
        yield
        asked = session.config.option.collectonly or session.shouldstop or session.shouldfail
        if self.awaited and not asked and session.exitstatus in JUDGED:
            _fail(session, sorted(self.awaited))


def _fail(session: pytest.Session, lost: list[str]) -> None:
    config = session.config
    if config.cache is not None:
        failed = config.cache.get("cache/lastfailed", {})
        config.cache.set("cache/lastfailed", {**failed, **dict.fromkeys(lost, True)})
    if (terminal := config.pluginmanager.get_plugin("terminalreporter")) is not None:
        for name in lost:
            terminal.write_line(f"LOST {name} - its process ended before it had a result")
        terminal.write_line(f"{len(lost)} lost")
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
