"""Tables of ClickHouse: addresses, types, names in statements, and portions of rows."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.pipelines.clickhouse.core.addresses import TableAddress, parse_address
from tidemill.pipelines.clickhouse.core.tables import create_target, quoted, sealed_batch, stage_of, text, type_of
from tidemill.pipelines.clickhouse.target_table import portions
from tidemill.pipelines.errors import WrongOption


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("chdb:lake/shop", TableAddress(path="lake/shop")),
        ("chdb:///var/shop", TableAddress(path="/var/shop")),
        ("http://db", TableAddress("db")),
        ("clickhouse://me:p%40ss@db:9/shop", TableAddress("db", 9, "shop", "me", "p@ss")),
        ("https://db/shop", TableAddress("db", 8443, "shop", secure=True)),
    ],
)
def test_addresses(url: str, address: TableAddress) -> None:
    assert parse_address(url) == address
    assert "p@ss" not in str(address)


@pytest.mark.parametrize("url", ["chdb:", "db:9000", "postgres://db/shop", "http://", "http://db:port"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(WrongOption) as caught:
        parse_address(url)
    assert "\n" not in str(caught.value)


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


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_portions_do_not_depend_on_how_the_rows_came(sizes: list[int], rows_max: int) -> None:
    total = sum(sizes)
    numbers = iter(range(total))
    batches = [pa.record_batch({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    found = [table["n"].to_pylist() for table in portions(batches, rows_max)]
    assert found == [list(range(at, min(at + rows_max, total))) for at in range(0, total, rows_max)]
