"""Reports the tests of a second try. `make unit` runs failed tests once more, with `--second-try`.

Otherwise a run that passes at the second try looks like one that passed at the first. The summary line counts these
tests as retried. The last line names them, so that CI shows which tests need a fix.
"""

from collections.abc import Generator
from typing import Any

import pytest

NAMES_MAX = 20
"""The limit of names on the last line, because a broken machine fails every test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-try", action="store_true", help="count and name the tests of this run as retried")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--second-try"):
        config.pluginmanager.register(Retried(config))


class Retried:
    """The tests that ran in this session, in order."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        self.names.append(report.nodeid)
        if (terminal := self._terminal()) is not None:
            terminal.stats.setdefault("retried", []).append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None]:
        """Print the names after the summary line."""
        yield
        if self.names and (terminal := self._terminal()) is not None:
            terminal.write_line(summary(self.names))

    def _terminal(self) -> Any:
        """The terminal reporter, which is registered after this plugin."""
        return self._config.pluginmanager.get_plugin("terminalreporter")


def summary(names: list[str]) -> str:
    """The last line of the run."""
    more = f", and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"retried: {len(names)} ({', '.join(names[:NAMES_MAX])}{more})"
