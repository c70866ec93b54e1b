"""One Spark session and one broker for all Spark tests: starting them is what takes the time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidemill.spark
from tidemill.testing import Broker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch: Path = tmp_path_factory.mktemp("spark")
    options = {
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dderby.system.home={scratch}",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
        "spark.driver.memory": "1g",
    }
    session = tidemill.spark.session("local[2]", name="tests", options=options)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings={"num.partitions": "2", "log.segment.bytes": "1048576"}) as running:
        yield running
