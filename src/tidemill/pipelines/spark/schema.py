"""The columns of a topic as Spark types, equal to those of Spark's kafka source."""

from collections.abc import Iterable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidemill.pipelines.errors import WrongOption

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


def schema_of(columns: Iterable[str]) -> StructType:
    """The schema of these columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def columns_in(schema: StructType) -> tuple[str, ...]:
    """The columns that a user requested.

    WrongOption names a column that a topic does not have, or that has another type.
    """
    for field in schema.fields:
        known = TYPES.get(field.name)
        if known is None:
            raise WrongOption(f"schema: column {field.name} does not exist; a topic has {', '.join(TYPES)}")
        if field.dataType.simpleString() != known.simpleString():
            found, right = field.dataType.simpleString(), known.simpleString()
            raise WrongOption(f"schema: the column {field.name} is {right}, not {found}; convert it after reading")
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise WrongOption(f"schema: the column {name} occurs twice")
    return tuple(names)
