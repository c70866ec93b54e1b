"""pytest plugins for the run of one mutant: chosen tests, the same examples each time, bounded time and memory."""

import resource
import signal
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings

PROFILE = "mutants"
MEMORY_BYTES_MAX = 12 * 2**30
"""Address space, most of which is never used; a mutant that allocates without end fails here."""
OPTIONS = ("-x", "-q", "--no-header", "--assert=plain", "-p", "no:cacheprovider")
CPU_S, WALL_S = 3.0, 30.0
"""The limits of a test that is not known from the run on the unchanged source."""

settings.register_profile(
    PROFILE,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


class Bounds:
    """The limits of a run. `limits` has the CPU seconds and the seconds on the clock that a test may take.

    A test that calculates without end is stopped by its CPU time, which does not depend on other programs.
    """

    def __init__(self, limits: Mapping[str, Sequence[float]]) -> None:
        self._limits = limits

    @pytest.hookimpl
    def pytest_configure(self) -> None:
        """After `tests/conftest.py`, which loads the profile of the ordinary run."""
        settings.load_profile(PROFILE)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.add_marker(pytest.mark.timeout(self._of(item)[1]))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_PROF, self._of(item)[0])  # the signal ends the process
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _of(self, item: pytest.Item) -> Sequence[float]:
        return self._limits.get(item.nodeid, (CPU_S, WALL_S)) if self._limits else (0.0, 0.0)


class Choice:
    """Runs the chosen tests in their order; all collected tests when none of them is found."""

    def __init__(self, chosen: Sequence[str]) -> None:
        self._chosen = chosen

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = {item.nodeid: item for item in items}
        if kept := [found[name] for name in self._chosen if name in found]:
            items[:] = kept
