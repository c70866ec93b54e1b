"""A run of a pipeline: the runner, its status file, reports, and the Spark and Java that it needs."""
