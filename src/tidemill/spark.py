"""Spark for Tidemill: `session()` starts a session, `register(spark)` adds format("tidemill") to an existing one.

`report(spark, "127.0.0.1:9092")` shows the streaming queries of a session in the console of a broker.
"""

from tidemill.pipelines.run.java import JavaMissing
from tidemill.pipelines.spark.report_listener import report
from tidemill.pipelines.spark.session import register, session

__all__ = ["JavaMissing", "register", "report", "session"]
