"""Spark errors of the demo pipeline."""

from tidemill.cli.demo import pipeline


def test_an_error_of_spark_is_one_line() -> None:
    assert pipeline._line(RuntimeError("first\nsecond")) == "first"
    assert pipeline._line(RuntimeError()) == "RuntimeError"
    missing = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    assert pipeline._line(missing) == "pyspark is not installed; pip install 'tidemill[spark]'"
