"""Data pipelines on Spark: topics as DataFrames, and DataFrames as topics.

`core` decides (options, offsets, ranges) and imports neither Spark nor a socket. `planning`, `reading` and `writing`
talk to a broker. `spark` is the only folder that imports PySpark. It fits the other modules to Spark's Python Data
Source API.
"""
