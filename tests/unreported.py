"""Tests that were collected and never reported: a process that ends halfway takes its share of them with it.

pytest tells of the others alone, and the second try of `make unit` runs what failed alone. So what has no result counts
as failed: it is written to where `--last-failed` reads, and the run fails.
"""

from collections.abc import Generator, Iterable

import pytest

# Ctrl-C, a wrong option and an empty selection are told by pytest as they are: nobody expects the rest to have run.
JUDGED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERNAL_ERROR)


def pytest_configure(config: pytest.Config) -> None:
    """One process keeps the books: the one that starts the others, or the only one."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Books())


class Books:
    """What has no result yet."""

    def __init__(self) -> None:
        self.awaited: set[str] = set()
        self._told = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.awaited = {item.nodeid for item in session.items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        """All processes collect the same; one that takes a dead one's place does so when results are in already."""
        if not self._told:
            self.awaited, self._told = set(ids), True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is through when it was cleaned up, or failed; a process that died under it is a failure of its own."""
        if report.when == "teardown" or report.failed:
            self.awaited.discard(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """After pytest has written down what failed."""
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
