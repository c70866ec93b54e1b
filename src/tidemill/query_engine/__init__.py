"""The process that runs SQL queries: an embedded ClickHouse without access to files, network and other processes."""
