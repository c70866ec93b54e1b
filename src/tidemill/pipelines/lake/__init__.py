"""Lakes: folders of Parquet files that grow by commits, each exactly once."""
