"""What every test has."""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests import retried, unreported
from xdist.scheduler import LoadFileScheduling

from tidemill.app.logs import configure

# A busy machine is no reason to fail: neither a slow example nor slow drawing is a finding.
settings.register_profile("tidemill", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("tidemill")

# Tests start programs beside gRPC clients; see `tidemill.client.timelines`. It is read when gRPC is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# Brokers and consumers inside of the tests' process leave logs alone when somebody has spoken already: warnings, to
# standard error, so that a test of what a command prints sees the command alone.
configure("warning", "auto")
# A logger that remembers how it was set up when it was first used would stay like that for all tests that follow.
structlog.configure(cache_logger_on_first_use=False)

# What a shell without a terminal starts in the background ignores Ctrl-C, and so would the programs of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The longest first, so that no process is left alone with them at the end.
SLOW = (
    "tests/spark/",
    "tests/chaos/",
    "tests/cluster/",
    "tests/hostile/",
    "tests/compat/",
    "tests/simulation/",
    "tests/integration/",
    "tests/contract/",
)

TOGETHER = ("tests/spark/", "tests/hostile/")


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A test may change how this process logs; the next one, and the brokers that are shared, know nothing of it."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers = list(root.handlers)
    yield
    structlog.configure(**before)
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)


@pytest.fixture(scope="module", autouse=True)
def _no_clients_of_other_files() -> None:
    """A Kafka client that an exception of an earlier file holds by its traceback would tell of its lost broker here.

    It writes to standard error by itself, in the middle of what a command writes there. Spark's tests share theirs.
    """
    if librdkafka_clients():
        gc.collect()


def librdkafka_clients() -> int:
    """How many librdkafka clients this process has: each has one thread of that name."""
    count = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # a thread may end meanwhile
            count += name.read_text() == "rdk:main\n"
    return count


def pytest_addoption(parser: pytest.Parser) -> None:
    retried.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    unreported.pytest_configure(config)
    retried.pytest_configure(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {place: rank for rank, place in enumerate(SLOW)}
    items.sort(
        key=lambda item: next((rank for place, rank in places.items() if item.nodeid.startswith(place)), len(SLOW))
    )


class Scheduling(LoadFileScheduling):  # type: ignore[misc] # untyped
    """Side by side, a file stays together; so does all of Spark, which shares one session, and so do all attacks.

    Two attacks at a time would measure each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        together = next((place for place in TOGETHER if nodeid.startswith(place)), None)
        return together or str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)
