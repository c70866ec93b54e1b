"""Data pipelines on Spark: topics as DataFrames, and DataFrames as topics.

`spec` is `pipeline.yml`. `source` reads topics. `topic`, `lake` and `clickhouse` are the places that sinks write to.
`run` has the runner, its status and reports. `spark` is the only package that imports PySpark: it fits the others to
Spark's Python Data Source API. `sink` has the sink types, above all of them. A `core` decides, and does no I/O.
"""
