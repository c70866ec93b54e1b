"""One Spark session and one broker for all Spark tests, because starting them takes most of the time.

Every wait has a limit. Tests poll under `topics.LIMIT_S`. Spark kills a Python worker that is silent for IDLE_S.
`stop()` of a query gives up after STOP_S. pytest's timeout is the last resort, because it leaves the session unusable
when it interrupts a Spark call. The report then includes what the JVM was waiting for.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.topics import Outside

import tidemill.spark
from tidemill.testing import Broker

IDLE_S = 60
STOP_S = 30
DUMP_S = 20


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and "Timeout" in str(call.excinfo.value):
        report.sections.append(("threads of the JVM", threads_of_jvm()))
    return report


def threads_of_jvm() -> str:
    jstack = shutil.which("jstack")
    javas = [each.pid for each in psutil.Process().children(recursive=True) if "java" in each.name()]
    if jstack is None:
        return "there is no jstack"
    return "".join(
        subprocess.run([jstack, str(pid)], capture_output=True, text=True, timeout=DUMP_S, check=False).stdout
        for pid in javas
    )


@pytest.fixture(scope="session", autouse=True)
def folder_of_jvms() -> Iterator[Path]:
    """The folder for temporary files that a killed JVM leaves behind.

    Its name is short, because it contains sockets.
    """
    with tempfile.TemporaryDirectory(prefix="tidemill-jvm-", ignore_cleanup_errors=True) as folder:
        given = {"SPARK_LOCAL_DIRS": folder, "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder}"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            yield Path(folder)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch: Path = tmp_path_factory.mktemp("spark")
    options = {
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dderby.system.home={scratch}",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.python.worker.idleTimeoutSeconds": f"{IDLE_S}s",
        "spark.python.worker.killOnIdleTimeout": "true",
        "spark.sql.streaming.stopTimeout": f"{STOP_S}s",
    }
    session = tidemill.spark.session("local[2]", name="tests", options=options)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings={"num.partitions": "2", "log.segment.bytes": "1048576"}) as running:
        yield running


@pytest.fixture(scope="session")
def outside(broker: Broker) -> Outside:
    return Outside(broker.bootstrap_servers)


@pytest.fixture
def topic(outside: Outside, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    return outside.create(name, retention_ms="-1")  # the tests use old timestamps
