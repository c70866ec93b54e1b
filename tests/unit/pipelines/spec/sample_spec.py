"""A `pipeline.yml` with every kind of source and sink."""

from copy import deepcopy
from typing import Any

GOOD: dict[str, Any] = {
    "name": "shop",
    "sources": {
        "orders": {
            "topic": "orders",
            "schema": "item string, at timestamp",
            "watermark": {"column": "at", "delay": "10 seconds"},
        },
        "clicks": {"topic": "clicks", "format": "raw", "start": "latest"},
    },
    "transformations": {"revenue": {"file": "transformations/revenue.sql"}},
    "expectations": {"known": {"view": "orders", "expect": "item is not null", "otherwise": "drop"}},
    "sinks": {
        "out": {"from": "revenue", "topic": "revenue", "key": "item", "mode": "update"},
        "files": {"from": "orders", "parquet": "lake/orders", "by": "item"},
        "delta": {"from": "orders", "delta": "lake/delta"},
        "iceberg": {"from": "orders", "iceberg": "lake/iceberg", "by": ["item"]},
        "screen": {"from": "orders", "console": True},
        "later": {"from": "orders", "timeline": "reminders", "id": "item", "due": "at", "body": "item"},
        "table": {"from": "orders", "clickhouse": "chdb:lake/shop", "table": "orders", "by": ["item"]},
    },
    "schedule": "every 2 seconds",
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good one with one thing changed; None takes it out."""
    spec = deepcopy(GOOD)
    *parents, last = path.split(".")
    at = spec
    for name in parents:
        at = at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return spec
