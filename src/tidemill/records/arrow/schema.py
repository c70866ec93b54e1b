"""The columns of a topic, with the names and types of Spark's own kafka source.

`timestamp` counts microseconds, because that is Spark's unit. Times that do not fit (after the year 294,000) are
clamped. `timestampType` is 0 for the producer's time and 1 for the broker's. A record without headers has null and not
an empty list, as in Spark.
"""

import pyarrow as pa

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(HEADER)),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
MICROSECONDS = 1000
TIMESTAMP_MS_MAX = (2**63 - 1) // MICROSECONDS


def schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of these columns in their order. ValueError names an unknown column."""
    for name in columns:
        if name not in COLUMNS:
            raise ValueError(f"there is no column {name}; the columns are {', '.join(COLUMNS)}")
    return pa.schema([SCHEMA.field(name) for name in columns])
