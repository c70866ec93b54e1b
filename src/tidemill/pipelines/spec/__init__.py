"""The spec of a pipeline: `pipeline.yml`, the files that it names, and their folder."""
