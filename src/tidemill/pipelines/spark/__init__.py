"""Spark's side of the pipelines: the only place that imports PySpark."""
