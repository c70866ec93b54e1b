"""Spark's filters as comparisons of the source."""

import pytest
from pyspark.sql.datasource import EqualTo, Filter, In, IsNotNull, Not, StringContains

from tidemill.pipelines.source.core.pushdown import Comparison
from tidemill.pipelines.spark.source import comparison_of


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        (EqualTo(("offset",), 5), Comparison("offset", "EqualTo", 5)),
        (Not(In(("topic",), ("a",))), Comparison("topic", "In", ("a",), negated=True)),
        (IsNotNull(("key",)), Comparison("key", "IsNotNull")),
        (StringContains(("a", "b"), "x"), None),
    ],
)
def test_filters_of_spark_are_comparisons(filter_: Filter, expected: Comparison | None) -> None:
    assert comparison_of(filter_) == expected
