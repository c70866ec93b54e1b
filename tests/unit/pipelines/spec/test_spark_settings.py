"""Settings of the Spark session."""

import pytest

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.spec.core.spark_settings import parse_settings


def test_settings_of_spark() -> None:
    assert parse_settings(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for wrong, line in {
        "spark.a": "--conf is spark.a; write a setting of Spark",
        "a=b": "--conf a is not a Spark setting; their names look like",
        "=b": "--conf  is not a Spark setting",
        "spark.master=local": "--conf spark.master is not set like this; give --master",
    }.items():
        with pytest.raises(WrongOption, match=line):
            parse_settings([wrong])
