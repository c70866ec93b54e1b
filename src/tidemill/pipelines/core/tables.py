"""Tables of ClickHouse as a sink sees them: their types, and the statements of a micro-batch.

A micro-batch is written once, whatever its tasks, by tables that stand beside the target:
1. `filling`: a table like the target, of a name that no other attempt has. All rows go there.
2. It is renamed to `sealed_<batch>`. That succeeds for one attempt only, and from then on the micro-batch is decided.
3. Its partitions are moved to the target. Each move is one step for ClickHouse, so that doing it again moves the rest.

The sealed table stays, empty, as the mark of its micro-batch until a later one is through. Whoever starts again drops
the tables of earlier attempts that were not sealed, which also keeps a driver that was thought dead from sealing.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa

from tidemill.pipelines.core.errors import WrongOption

DIGITS = 16
TOKENS_KEPT = 10_000
"""How many inserts a staging table remembers, so that a task that runs again does not double its rows."""
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
    """The names of one sink: its database, its table, and a mark that is in the names of all tables beside it."""

    database: str
    table: str
    mark: str

    @property
    def target(self) -> str:
        """The target as statements name it."""
        return self.quoted(self.table)

    def filling(self, attempt: str) -> str:
        """Where an attempt puts its rows."""
        return f"tidemill_{self.mark}_filling_{attempt}"

    def sealed(self, batch: int) -> str:
        """What it is called once it is decided."""
        return f"tidemill_{self.mark}_sealed_{batch}"

    def quoted(self, table: str) -> str:
        """A table of the database as statements name it."""
        return f"{quoted(self.database)}.{quoted(table)}"


def stage_of(database: str, table: str, query: str) -> StageTables:
    """The names for a table and a query."""
    return StageTables(database, table, sha256(f"{query}/{table}".encode()).hexdigest()[:DIGITS])


def sealed_batch(table: str) -> int | None:
    """The micro-batch that a sealed table stands for."""
    found = _SEALED.fullmatch(table)
    return int(found[1]) if found else None


def create_target(stage: StageTables, schema: pa.Schema, by: Iterable[str]) -> str:
    """The statement that creates the target unless it is there."""
    order = ", ".join(quoted(column) for column in by) or "tuple()"
    columns = ", ".join(f"{quoted(field.name)} {type_of(field)}" for field in schema)
    # A sorting key of nulls is allowed: which columns may be null is Spark's guess, and mostly "all".
    return (
        f"CREATE TABLE IF NOT EXISTS {stage.target} ({columns}) ENGINE = MergeTree ORDER BY ({order}) "
        "SETTINGS allow_nullable_key = 1"
    )


def create_filling(stage: StageTables, attempt: str) -> list[str]:
    """The statements that create a table like the target, which knows an insert that comes again."""
    name = stage.quoted(stage.filling(attempt))
    window = f"ALTER TABLE {name} MODIFY SETTING non_replicated_deduplication_window = {TOKENS_KEPT}"
    return [f"CREATE TABLE {name} AS {stage.target}", window]


def type_of(field: pa.Field) -> str:
    """ClickHouse's type for a column; WrongOption names one that has none."""
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
        raise WrongOption(f"the column {name} is {kind}, for which ClickHouse has no type; cast it")
    return found


def quoted(name: str) -> str:
    """A name as ClickHouse's statements spell it, whatever is in it."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def text(value: str) -> str:
    """A text as ClickHouse's statements spell it."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
