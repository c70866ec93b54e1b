"""The Java client, old and new: compiled and run as it is, against a broker in a process of its own."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.compat.programs import JAVA, NEWEST_JAVA, java_class_path

from tidemill.testing import Broker

VERSIONS = ("3.9.2", NEWEST_JAVA)
RUN_S = 150


@pytest.fixture(scope="module", params=VERSIONS)
def classpath(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return java_class_path(request.param, "Scenario", tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def broker(classpath: str) -> Iterator[Broker]:
    """One for each version: scenarios have topics and groups of their own."""
    assert classpath
    with Broker(process=True) as broker:
        yield broker


def run(classpath: str, broker: Broker, *arguments: str) -> None:
    command = [*JAVA, "-cp", classpath, "Scenario", broker.bootstrap_servers, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "ok"


def test_admin(classpath: str, broker: Broker) -> None:
    run(classpath, broker, "admin")


def test_codecs(classpath: str, broker: Broker) -> None:
    run(classpath, broker, "codecs")


@pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])
def test_group(classpath: str, broker: Broker, protocol: str) -> None:
    run(classpath, broker, "group", protocol)


def test_transactions(classpath: str, broker: Broker) -> None:
    run(classpath, broker, "transactions")
