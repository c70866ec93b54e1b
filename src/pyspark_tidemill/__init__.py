"""Registers format("tidemill") with Spark, which imports every package whose name begins with `pyspark_`."""

from tidemill.pipelines.spark.format import TidemillSource as DefaultSource

__all__ = ["DefaultSource"]
