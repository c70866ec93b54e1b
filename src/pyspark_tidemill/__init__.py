"""Spark looks for packages whose names begin with `pyspark_`: by this one it finds format("tidemill") by itself."""

from tidemill.pipelines.spark.format import TidemillSource as DefaultSource

__all__ = ["DefaultSource"]
