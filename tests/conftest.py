"""Setup for all tests: logging, Hypothesis, and how tests are divided among processes."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvloop
from hypothesis import HealthCheck, settings
from tests.support import retried, unique_ids, unreported, virtual_loop, virtual_timelines
from xdist.scheduler import LoadFileScheduling

from tidemill.app.logs import configure

# Slow examples and slow drawing are no failures, because the machine may be busy.
settings.register_profile("tidemill", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("tidemill")

# Tests fork while gRPC clients run; see `tidemill.client.timelines`. gRPC reads this at its first import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# Brokers and consumers in the tests' process keep an existing log configuration. Warnings go to standard error, so that
# a test of a command's standard output sees only the command.
configure("warning", "auto")
# A logger that caches its configuration at first use would keep it for all later tests.
structlog.configure(cache_logger_on_first_use=False)

# A background job of a shell without a terminal ignores Ctrl-C, and programs that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Longest files first, so that no process runs them alone at the end.
SLOW = (
    "tests/integration/spark/",
    "tests/chaos/",
    "tests/integration/cluster/",
    "tests/hostile/",
    "tests/fuzz/test_coverage_guided.py",
    "tests/compat/",
    "tests/simulation/",
    "tests/integration/",
    "tests/contract/",
)

TOGETHER = ("tests/integration/spark/", "tests/hostile/")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """Restore the log configuration after each test, because tests and shared brokers use the same process."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers = list(root.handlers)
    yield
    structlog.configure(**before)
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)


@pytest.fixture(scope="module", autouse=True)
def _no_clients_of_other_files() -> None:
    """Collect Kafka clients of earlier files. An exception may hold one by its traceback.

    Such a client would write about its lost broker to standard error, in the middle of a command's output. Spark's
    tests share their clients.
    """
    if librdkafka_clients():
        gc.collect()


def librdkafka_clients() -> int:
    """The number of librdkafka clients in this process: each has one thread of that name."""
    count = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread may have ended
            count += name.read_text() == "rdk:main\n"
    return count


def pytest_addoption(parser: pytest.Parser) -> None:
    retried.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    unreported.pytest_configure(config)
    retried.pytest_configure(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    unique_ids.refuse_repeated(item.nodeid for item in items)
    places = {place: rank for rank, place in enumerate(SLOW)}
    items.sort(
        key=lambda item: next((rank for place, rank in places.items() if item.nodeid.startswith(place)), len(SLOW))
    )


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,  # the loop of a broker in production
    "virtual": virtual_loop.VirtualLoop,  # without sockets and threads
    "virtual_selector": virtual_timelines.VirtualLoop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    marker = item.get_closest_marker("event_loop")
    name = marker.args[0] if marker else "asyncio"
    return {name: LOOPS[name]}


class Scheduling(LoadFileScheduling):  # type: ignore[misc] # untyped
    """Keeps the tests of a file in one process. All Spark tests share a session, so they stay together too.

    All attacks also stay in one process, because two attacks at a time would affect each other's measurements.
    """

    def _split_scope(self, nodeid: str) -> str:
        together = next((place for place in TOGETHER if nodeid.startswith(place)), None)
        return together or str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)
