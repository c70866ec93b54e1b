"""The columns of a lake, and the check that rows fit them.

A lake keeps the columns of its first rows. Rows with other columns are refused before anything is written, because
readers would fail or omit values silently. Types are compared by Spark's names, because formats and libraries have
several Arrow types for one Spark type.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidemill.pipelines.errors import PipelineError, WrongOption

ADVICE = "write to another folder, or give the rows the columns of the lake"
DIFFERENCES_MAX = 5
VOID = "void"
FOLDER_TYPES = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean")
"""Types whose values have one spelling as a folder name, in all formats."""
_SCALARS = {
    pa.null(): VOID,
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
}


class SchemaChanged(PipelineError):
    """Rows do not have the columns of the lake."""


class LakeColumn(NamedTuple):
    """A column. The type is None if it is only known from folder names."""

    name: str
    type: str | None
    nullable: bool = True


class LakeLayout(NamedTuple):
    """The columns of a lake, and which of them are folder names."""

    columns: tuple[LakeColumn, ...]
    by: tuple[str, ...] = ()

    @property
    def never_null(self) -> tuple[str, ...]:
        """The columns that a table declares as never null. Only tables of former versions have such columns."""
        return tuple(column.name for column in self.columns if not column.nullable)


def layout_of(schema: pa.Schema, by: Sequence[str] = (), kept_as: Mapping[str, str] | None = None) -> LakeLayout:
    """The layout of rows. `kept_as` names the types that a format stores as others."""
    kept = kept_as or {}
    columns = tuple(LakeColumn(field.name, type_name(field.type, kept), field.nullable) for field in schema)
    return LakeLayout(columns, tuple(by))


def nullable(schema: pa.Schema, never_null: Collection[str] = ()) -> pa.Schema:
    """The schema that a lake stores: columns are nullable, because Spark's flags change with the query.

    `never_null` names the exceptions. A table that declares a column as never null accepts no other files.
    """
    return pa.schema([field.with_nullable(field.name not in never_null) for field in schema])


def type_name(kind: pa.DataType, kept_as: Mapping[str, str]) -> str:
    """Spark's name of a type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type, kept_as)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type, kept_as)},{type_name(kind.item_type, kept_as)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name}:{type_name(each.type, kept_as)}' for each in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    name = _SCALARS.get(kind, str(kind))
    return kept_as.get(name, name)


def check_fits(lake: str, kept: LakeLayout | None, now: LakeLayout) -> None:
    """Refuse rows that do not have the columns of the lake. None means a lake without rows."""
    if kept is None:
        return
    found = differences(kept, now)
    if found:
        more = f"; and {len(found) - DIFFERENCES_MAX} more" if len(found) > DIFFERENCES_MAX else ""
        raise SchemaChanged(f"{lake} has other columns: {'; '.join(found[:DIFFERENCES_MAX])}{more}; {ADVICE}")


def differences(kept: LakeLayout, now: LakeLayout) -> list[str]:
    """The differences, in words. The order of columns does not matter."""
    here = {column.name: column for column in kept.columns}
    there = {column.name: column for column in now.columns}
    found = []
    for name in sorted(here.keys() | there.keys()):
        if name not in there:
            found.append(f"{name} is {here[name].type or 'a folder'} in the lake, and missing now")
        elif name not in here:
            found.append(f"{name} is not in the lake, and {there[name].type} now")
        elif None not in {here[name].type, there[name].type} and here[name].type != there[name].type:
            found.append(f"{name} is {here[name].type} in the lake, and {there[name].type} now")
        elif there[name].nullable and not here[name].nullable:
            found.append(f"{name} is never null in the lake, and may be null now")
    if kept.by != now.by:
        spelled = [", ".join(by) or "nothing" for by in (kept.by, now.by)]
        found.append(f"its folders are by {spelled[0]}, and by {spelled[1]} now")
    return found


def check_storable(layout: LakeLayout) -> None:
    """Refuse rows that a lake cannot store."""
    names = [column.name.lower() for column in layout.columns]
    types = {column.name: column.type for column in layout.columns}
    for column in layout.columns:
        if names.count(column.name.lower()) > 1:
            raise WrongOption(
                f"the column {column.name} occurs twice; a lake ignores case in column names, so rename one"
            )
        if column.type == VOID:
            raise WrongOption(f"the column {column.name} has no type; write CAST(NULL AS STRING), or leave it out")
    for name in layout.by:
        if types.get(name) not in FOLDER_TYPES:
            raise WrongOption(
                f"by names {name}, which is {types.get(name)}; folders are made of {', '.join(FOLDER_TYPES)}"
            )
    if layout.by and len(layout.by) == len(layout.columns):
        raise WrongOption("by names all columns; leave one for the files")
