"""Lakes: folders of Parquet files. Each commit adds the rows of a micro-batch exactly once."""
