"""The Python of Spark and of its workers."""

import sys
from pathlib import Path

from tidemill.pipelines.spark.session import choose_python


def test_workers_have_the_python_of_the_driver_or_that_of_their_container() -> None:
    own, there = sys.executable, str(Path(sys.executable).parent)
    for master, reported in {
        "local[2]": {"PYSPARK_PYTHON": own, "PATH": "/bin"},
        "spark://host:7077": {"PYSPARK_PYTHON": own, "PATH": "/bin"},
        "k8s://host": {"PATH": f"{there}:/bin"},
        "yarn": {"PATH": f"{there}:/bin"},
    }.items():
        environment = {"PATH": "/bin"}
        choose_python(master, environment)
        assert environment == reported | {"PYSPARK_DRIVER_PYTHON": own}
    for master in ("local", "yarn"):
        environment = {"PATH": "/bin", "PYSPARK_PYTHON": "./env/bin/python"}
        choose_python(master, environment)
        assert environment["PYSPARK_DRIVER_PYTHON"] == environment["PYSPARK_PYTHON"] == "./env/bin/python"
        assert environment["PATH"] == "/bin"
