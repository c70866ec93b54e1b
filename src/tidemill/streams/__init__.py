"""The log of a partition: decisions (`core`), segment files (`segments`) and ClickHouse tables (`clickhouse`)."""
