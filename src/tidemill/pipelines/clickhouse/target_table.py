"""Writes each micro-batch exactly once to a table of ClickHouse or chDB. `core.tables` describes the procedure."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from tidemill.pipelines.clickhouse.core.addresses import TableAddress
from tidemill.pipelines.clickhouse.core.tables import (
    StageTables,
    create_filling,
    create_target,
    quoted,
    sealed_batch,
    text,
)
from tidemill.pipelines.errors import PipelineError

CONNECT_TIMEOUT_S = 10
LINE_CHARS_MAX = 300


class TargetTable:
    """A target table and its staging tables. It has one connection and belongs to one thread."""

    def __init__(self, address: TableAddress, stage: StageTables) -> None:
        self._address = address
        self._stage = stage
        with self._translated():
            self._client = _connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def create(self, schema: pa.Schema, by: Sequence[str]) -> None:
        """Create the target from the columns of the rows, unless it exists."""
        self.do(f"CREATE DATABASE IF NOT EXISTS {quoted(self._stage.database)}")
        self.do(create_target(self._stage, schema, by))

    def begin(self, batch: int, attempt: str) -> bool:
        """Create the staging table of a micro-batch. Returns False when the micro-batch is written already."""
        existing = self.staging_tables()
        sealed = {found: name for name in existing if (found := sealed_batch(name)) is not None}
        for found in sorted(sealed):
            self._move(sealed[found])
        if any(found >= batch for found in sealed):
            return False
        for name in set(existing) - set(sealed.values()):
            self.do(f"DROP TABLE IF EXISTS {self._stage.quoted(name)} SYNC")
        for statement in create_filling(self._stage, attempt):
            self.do(statement)
        return True

    def insert(self, attempt: str, rows: pa.Table, token: str) -> None:
        """Add rows. A repeated insert under the same token changes nothing."""
        with self._translated():
            self._client.insert_arrow(
                self._stage.filling(attempt),
                rows,
                database=self._stage.database,
                settings={"insert_deduplication_token": token, "insert_deduplicate": 1, "async_insert": 0},
            )

    def finish(self, batch: int, attempt: str) -> None:
        """Decide the micro-batch, then make it visible and drop the sealed tables of earlier ones."""
        filling, sealed = self._stage.filling(attempt), self._stage.sealed(batch)
        self.do(f"RENAME TABLE {self._stage.quoted(filling)} TO {self._stage.quoted(sealed)}")
        self._move(sealed)
        for name in self.staging_tables():
            found = sealed_batch(name)
            if found is not None and found < batch:
                self.do(f"DROP TABLE IF EXISTS {self._stage.quoted(name)} SYNC")

    def _move(self, table: str) -> None:
        where = f"database = {text(self._stage.database)} AND table = {text(table)} AND active"
        question = f"SELECT DISTINCT partition_id FROM system.parts WHERE {where}"  # noqa: S608 - its values are quoted
        for partition in self.ask(question):
            source = self._stage.quoted(table)
            self.do(f"ALTER TABLE {source} MOVE PARTITION ID {text(partition)} TO TABLE {self._stage.target}")

    def staging_tables(self) -> list[str]:
        """The names of the staging tables of the target."""
        like = text(f"tidemill\\_{self._stage.mark}\\_%")
        where = f"database = {text(self._stage.database)} AND name LIKE {like}"
        return self.ask(f"SELECT name FROM system.tables WHERE {where}")  # noqa: S608 - as above

    def ask(self, question: str) -> list[str]:
        """The first column of a query's result."""
        with self._translated():
            return [str(row[0]) for row in self._client.query(question).result_rows]

    def do(self, statement: str) -> None:
        """Run a statement."""
        with self._translated():
            self._client.command(statement)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except PipelineError:
            raise
        except ImportError as error:
            raise PipelineError(f"{self._address}: {error}; install tidemill[clickhouse]") from None
        except Exception as error:  # the client raises many types; users get one line
            raise PipelineError(f"{self._address}: {_line_of(error)}") from error


def _line_of(error: BaseException) -> str:
    """The useful part of an error.

    For an unreachable server this is the system's reason, without the list of retries.
    """
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return f"no answer ({inner.strerror}); check that the server runs and that the address is right"
        inner = inner.__cause__ or inner.__context__
    return " ".join(str(error).split())[:LINE_CHARS_MAX] or type(error).__name__


def portions(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.Table]:
    """The rows in tables of `rows_max`; only the last may be shorter.

    The same rows give the same tables, however batched.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for each in batches:
        batch = each
        while count + batch.num_rows >= rows_max:
            taken = rows_max - count
            yield pa.Table.from_batches([*waiting, batch.slice(0, taken)])
            batch, waiting, count = batch.slice(taken), [], 0
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting)


def _connect(address: TableAddress) -> Any:
    from clickhouse_connect.driver import create_client  # noqa: PLC0415 - an extra, and slow to load

    if address.path:
        return create_client(dsn=f"chdb://{address.path}")
    return create_client(
        host=address.host,
        port=address.port,
        username=address.username or None,
        password=address.password,
        secure=address.secure,
        connect_timeout=CONNECT_TIMEOUT_S,
        autogenerate_session_id=False,
    )
