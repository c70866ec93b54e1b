"""Data pipelines on Spark: topics as DataFrames, and DataFrames as topics.

`core` decides (options, offsets, ranges) and imports neither Spark nor a socket. `planning`, `reading` and `writing`
ask and tell a broker. `spark` is the only folder that knows PySpark: it fits them to Spark's Python Data Source API.
"""
