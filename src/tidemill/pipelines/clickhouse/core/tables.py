"""ClickHouse tables of a sink: column types, and the statements of a micro-batch.

A micro-batch is written exactly once, whatever its tasks are, by staging tables next to the target:
1. `filling` is a table like the target, with a name that no other attempt has. All rows are inserted there.
2. It is renamed to `sealed_<batch>`. Only one attempt succeeds, and that decides the micro-batch.
3. Its partitions are moved to the target. Each move is atomic in ClickHouse, so a repeated move moves the rest.

The sealed table stays, empty, to mark its micro-batch until a later one is finished. A restarted query drops the
unsealed tables of earlier attempts. This also prevents a driver that was presumed dead from sealing its table.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa

from tidemill.pipelines.errors import WrongOption

DIGITS = 16
TOKENS_KEPT = 10_000
"""How many inserts a staging table remembers, so that a repeated task does not duplicate its rows."""
_SCALARS = {
    pa.bool_(): "Bool",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "String",
    pa.large_string(): "String",
    pa.binary(): "String",
    pa.large_binary(): "String",
    pa.date32(): "Date32",
}
_SEALED = re.compile(r".*_sealed_(\d+)")


class StageTables(NamedTuple):
    """The names of one sink: its database, its table, and a mark in the names of all its staging tables."""

    database: str
    table: str
    mark: str

    @property
    def target(self) -> str:
        """The quoted name of the target."""
        return self.quoted(self.table)

    def filling(self, attempt: str) -> str:
        """The staging table of an attempt."""
        return f"tidemill_{self.mark}_filling_{attempt}"

    def sealed(self, batch: int) -> str:
        """The name of the staging table after the micro-batch is decided."""
        return f"tidemill_{self.mark}_sealed_{batch}"

    def quoted(self, table: str) -> str:
        """The quoted name of a table of the database."""
        return f"{quoted(self.database)}.{quoted(table)}"


def stage_of(database: str, table: str, query: str) -> StageTables:
    """The staging names for a table and a query."""
    return StageTables(database, table, sha256(f"{query}/{table}".encode()).hexdigest()[:DIGITS])


def sealed_batch(table: str) -> int | None:
    """The micro-batch that a sealed table marks."""
    found = _SEALED.fullmatch(table)
    return int(found[1]) if found else None


def create_target(stage: StageTables, schema: pa.Schema, by: Iterable[str]) -> str:
    """The statement that creates the target unless it exists."""
    order = ", ".join(quoted(column) for column in by) or "tuple()"
    columns = ", ".join(f"{quoted(field.name)} {type_of(field)}" for field in schema)
    # A nullable sorting key is allowed, because Spark reports most columns as nullable.
    return (
        f"CREATE TABLE IF NOT EXISTS {stage.target} ({columns}) ENGINE = MergeTree ORDER BY ({order}) "
        "SETTINGS allow_nullable_key = 1"
    )


def create_filling(stage: StageTables, attempt: str) -> list[str]:
    """The statements that create a staging table, which ignores repeated inserts."""
    name = stage.quoted(stage.filling(attempt))
    window = f"ALTER TABLE {name} MODIFY SETTING non_replicated_deduplication_window = {TOKENS_KEPT}"
    return [f"CREATE TABLE {name} AS {stage.target}", window]


def type_of(field: pa.Field) -> str:
    """ClickHouse's type for a column. WrongOption names a column without one."""
    kind = field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"Array({type_of(kind.value_field)})"
    if pa.types.is_map(kind):
        return f"Map({type_of(kind.key_field)}, {type_of(kind.item_field)})"
    if pa.types.is_struct(kind):
        return f"Tuple({', '.join(f'{quoted(each.name)} {type_of(each)}' for each in kind)})"
    scalar = _scalar(field.name, kind)
    return f"Nullable({scalar})" if field.nullable else scalar


def _scalar(name: str, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return f"DateTime64(6, '{kind.tz}')" if kind.tz else "DateTime64(6)"
    if pa.types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    found = _SCALARS.get(kind)
    if found is None:
        raise WrongOption(f"the column {name} is {kind}, which has no ClickHouse type; cast the column")
    return found


def quoted(name: str) -> str:
    """A quoted and escaped name for ClickHouse statements."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def text(value: str) -> str:
    """A quoted and escaped text for ClickHouse statements."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
