"""Tables of ClickHouse: types, and names in statements."""

import pyarrow as pa
import pytest

from tidemill.pipelines.clickhouse.core.tables import create_target, quoted, sealed_batch, stage_of, text, type_of
from tidemill.pipelines.errors import WrongOption


def test_types_follow_the_columns() -> None:
    schema = pa.schema(
        [
            pa.field("item", pa.string(), nullable=False),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("where", pa.struct([pa.field("x", pa.float64(), nullable=False)])),
            pa.field("counts", pa.map_(pa.string(), pa.int32())),
        ]
    )
    statement = create_target(stage_of("shop", "orders", "q"), schema, ["item"])
    assert statement == (
        "CREATE TABLE IF NOT EXISTS `shop`.`orders` (`item` String, `at` Nullable(DateTime64(6, 'UTC')), "
        "`price` Nullable(Decimal(10, 2)), `tags` Array(Nullable(String)), `where` Tuple(`x` Float64), "
        "`counts` Map(String, Nullable(Int32))) ENGINE = MergeTree ORDER BY (`item`) SETTINGS allow_nullable_key = 1"
    )
    with pytest.raises(WrongOption, match="the column wait is duration"):
        type_of(pa.field("wait", pa.duration("us")))


def test_names_cannot_break_out_of_a_statement() -> None:
    assert quoted("a`b\\") == "`a\\`b\\\\`"
    assert text("it's \\") == "'it\\'s \\\\'"
    stage = stage_of("shop", "orders", "q")
    assert sealed_batch(stage.sealed(12)) == 12
    assert sealed_batch(stage.filling("12")) is None
    assert stage.mark != stage_of("shop", "orders", "another").mark
