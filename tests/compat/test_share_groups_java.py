"""Share groups with the Java share consumer, old and new, against a broker in a process of its own."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.compat.programs import JAVA, NEWEST_JAVA, java_class_path

from tidemill.testing import Broker

VERSIONS = ("4.2.0", NEWEST_JAVA)
RUN_S = 150


@pytest.fixture(scope="module", params=VERSIONS)
def classpath(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return java_class_path(request.param, "Shares", tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def broker(classpath: str) -> Iterator[Broker]:
    assert classpath
    with Broker(settings={"group.share.heartbeat.interval.ms": "200"}, process=True) as broker:
        yield broker


@pytest.mark.parametrize("scenario", [("explicit", "batch_optimized"), ("explicit", "record_limit"), ("admin",)])
def test_share_consumers(classpath: str, broker: Broker, scenario: tuple[str, ...]) -> None:
    command = [*JAVA, "-cp", classpath, "Shares", broker.bootstrap_servers, *scenario]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "ok"
