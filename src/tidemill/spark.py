"""Spark for Tidemill: `session()` starts a session, `register(spark)` adds format("tidemill") to an existing one."""

from tidemill.pipelines.run.java import JavaMissing
from tidemill.pipelines.spark.session import register, session

__all__ = ["JavaMissing", "register", "session"]
