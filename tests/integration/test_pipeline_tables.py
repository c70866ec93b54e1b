"""Micro-batches into tables, on a real engine in a process of its own: every row once, wherever a process dies."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.chdb_front import running_front

from tidemill.pipelines.clickhouse.core.addresses import TableAddress, parse_address
from tidemill.pipelines.clickhouse.core.tables import StageTables, stage_of
from tidemill.pipelines.clickhouse.target_table import TargetTable
from tidemill.pipelines.errors import PipelineError

ROWS = 6
EMBEDDED = """
import json, sys, pyarrow as pa
from tidemill.pipelines.clickhouse.target_table import TargetTable
from tidemill.pipelines.clickhouse.core.addresses import parse_address
from tidemill.pipelines.clickhouse.core.tables import stage_of
rows = pa.table({"item": ["tea", None], "price": [2.5, 1.0]})
with TargetTable(parse_address("chdb:" + sys.argv[1]), stage_of("shop", "priced", "q")) as table:
    table.create(rows.schema, ["item"])
    for batch in (0, 0, 1):
        if table.begin(batch, "attempt"):
            table.insert("attempt", rows, "token")
            table.insert("attempt", rows, "token")
            table.finish(batch, "attempt")
    print(json.dumps(table.ask("SELECT count() FROM shop.priced WHERE item = 'tea'")))
"""


class Died(Exception):
    pass


class Mortal(TargetTable):
    """A table whose user dies before or after one of its statements."""

    steps_left: int | None = None

    def _step(self) -> None:
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise Died
            self.steps_left -= 1

    def do(self, statement: str) -> None:
        self._step()
        super().do(statement)
        self._step()

    def insert(self, attempt: str, rows: pa.Table, token: str) -> None:
        self._step()
        super().insert(attempt, rows, token)
        self._step()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableAddress]:
    with running_front(tmp_path_factory.mktemp("chdb")) as port:
        yield parse_address(f"http://127.0.0.1:{port}/shop")


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> StageTables:
    return stage_of("shop", request.node.name, "a-query")


def rows(batch: int, part: int, parts: int) -> pa.Table:
    numbers = list(range(part, ROWS, parts))
    return pa.table({"batch": pa.array([batch] * len(numbers), pa.int32()), "n": pa.array(numbers, pa.int32())})


def run(table: TargetTable, batch: int, parts: int, attempt: str) -> None:
    table.create(rows(0, 0, 1).schema, [])
    if table.begin(batch, attempt):
        for part in range(parts):
            table.insert(attempt, rows(batch, part, parts), f"{attempt}-{part}")
        table.finish(batch, attempt)


def found(address: TableAddress, stage: StageTables) -> list[str]:
    with TargetTable(address, stage) as table:
        return table.ask(f"SELECT toString((batch, n)) FROM {stage.target} ORDER BY batch, n")


def expected(batches: int) -> list[str]:
    return [f"({batch},{n})" for batch in range(batches) for n in range(ROWS)]


def test_a_writer_that_dies_at_every_step(address: TableAddress, stage: StageTables) -> None:
    with Mortal(address, stage) as table:
        for batch in count():
            table.steps_left = batch
            try:
                run(table, batch, 2, "first")
            except Died:
                table.steps_left = None
                run(table, batch, 1 + batch % 3, "second")
            else:
                break
        assert batch > 15
        assert table.staging_tables() == [stage.sealed(batch)]
    assert found(address, stage) == expected(batch + 1)


def test_a_replaced_writer_cannot_finish_its_batch(address: TableAddress, stage: StageTables) -> None:
    with TargetTable(address, stage) as zombie, TargetTable(address, stage) as other:
        zombie.create(rows(0, 0, 1).schema, [])
        assert zombie.begin(0, "zombie")
        zombie.insert("zombie", rows(0, 0, 2), "z")
        run(other, 0, 1, "other")
        with pytest.raises(PipelineError) as caught:
            zombie.finish(0, "zombie")
    assert str(caught.value).startswith(f"{address}: ")
    assert "\n" not in str(caught.value)
    assert found(address, stage) == expected(1)


def test_a_table_of_the_users_own_with_partitions(address: TableAddress, stage: StageTables) -> None:
    with TargetTable(address, stage) as table:
        table.do("CREATE DATABASE IF NOT EXISTS shop")
        table.do(f"CREATE TABLE {stage.target} (n Int32, batch Int32) ENGINE = MergeTree PARTITION BY n % 3 ORDER BY n")
        for batch in (0, 1, 1):
            run(table, batch, 2, f"attempt{batch}")
    assert found(address, stage) == expected(2)


def test_a_missing_server_gives_an_error_of_one_line() -> None:
    unreachable = parse_address("http://127.0.0.1:1/shop")
    with pytest.raises(PipelineError) as caught:
        TargetTable(unreachable, stage_of("shop", "t", "q"))
    why = "no answer (Connection refused); check that the server runs and that the address is right"
    assert str(caught.value) == f"ClickHouse at 127.0.0.1:1: {why}"


def test_the_embedded_engine(tmp_path: Path) -> None:
    command: list[Any] = [sys.executable, "-c", EMBEDDED, tmp_path / "shop"]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert reported.returncode == 0, reported.stderr
    assert json.loads(reported.stdout) == ["2"]
