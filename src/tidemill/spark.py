"""Spark for Tidemill: `session()` starts one, `register(spark)` adds format("tidemill") to one that you have."""

from tidemill.pipelines.java import JavaMissing
from tidemill.pipelines.spark.session import register, session

__all__ = ["JavaMissing", "register", "session"]
