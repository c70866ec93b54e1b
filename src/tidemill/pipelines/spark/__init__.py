"""Adapts the pipelines to Spark. Only this package imports PySpark."""
