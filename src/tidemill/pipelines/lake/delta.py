"""A Delta table, written with the Python library `deltalake`. The tasks' files become the actions of one transaction.

Delta stores the last transaction of each application. Here the application is the query and the transaction is its
micro-batch. Both are written in the same atomic commit as the rows. An attempt that never commits may leave files in
the folder. Readers do not see them, and `vacuum` removes them.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from tidemill.durable_files import move, sync
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.core.layout import LakeLayout, layout_of, nullable
from tidemill.pipelines.lake.interface import NO_VALUE, STAGING, CommitStep, check_rows

if TYPE_CHECKING:
    import pyarrow as pa


class DeltaLake:
    """One Delta table."""

    keeps_columns = False
    kept_as: Mapping[str, str] = MappingProxyType({})

    def __init__(self, root: Path) -> None:
        self.root = root

    def recover(self) -> None:
        """Delete the staged files."""
        shutil.rmtree(self.root / STAGING, ignore_errors=True)

    def holds(self, query: str, batch: int) -> bool:
        """Whether the query's last transaction is this micro-batch or a later one."""
        table = self._table()
        last = None if table is None else table.transaction_version(query)
        return last is not None and last >= batch

    def commit(self, step: CommitStep, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Move the files, then add them to the table in one transaction."""
        if step.query is not None:
            check_rows(self, schema, (*files, *step.removed)[0].by)
        for file in files:
            move(self.root / STAGING / file.path, self.root / file.path)
            sync((self.root / file.path).parent)
        by = list(_values((*files, *step.removed)[0].path))
        table = self._table() or DeltaTable.create(str(self.root), nullable(schema), mode="ignore", partition_by=by)
        changed = step.query is not None
        done = [] if step.query is None else [Transaction(step.query, step.batch)]
        try:
            table.create_write_transaction(
                [self._added(file, changed=changed) for file in files]
                + [_removed(file, changed=changed) for file in step.removed],
                mode="append",
                schema=table.schema(),
                partition_by=by,
                commit_properties=CommitProperties(app_transactions=done),
            )
        except DeltaError as error:
            raise PipelineError(f"{self.root}: {' '.join(str(error).split())}") from None

    def layout(self) -> LakeLayout | None:
        """The columns of the table."""
        import pyarrow as pa  # noqa: PLC0415 - loaded only where it is used

        table = self._table()
        return (
            None
            if table is None
            else layout_of(pa.schema(table.schema().to_arrow()), table.metadata().partition_columns)
        )

    def files(self) -> list[LakeFile]:
        """All files of the current version of the table."""
        table = self._table()
        actions: list[dict[str, Any]] = [] if table is None else _rows(table.get_add_actions(flatten=True))
        return [
            LakeFile(
                path=unquote(action["path"]),
                rows=action["num_records"],
                size=action["size_bytes"],
                partition=_number(action.get("min.partition")),
                first=_number(action.get("min.offset")),
                last=_number(action.get("max.offset")),
            )
            for action in actions
        ]

    def strays(self) -> list[str]:
        """Always empty, because Delta keeps the files of former versions in the folder."""
        return []

    def _table(self) -> DeltaTable | None:
        return DeltaTable(str(self.root)) if DeltaTable.is_deltatable(str(self.root)) else None

    def _added(self, file: LakeFile, *, changed: bool) -> AddAction:
        stats: dict[str, Any] = {"numRecords": file.rows}
        if file.partition >= 0:
            stats["minValues"] = {"partition": file.partition, "offset": file.first}
            stats["maxValues"] = {"partition": file.partition, "offset": file.last}
            stats["nullCount"] = {"partition": 0, "offset": 0}
        modified_ms = int((self.root / file.path).stat().st_mtime * 1000)
        return AddAction(
            file.path, file.size, _values(file.path), modified_ms, data_change=changed, stats=json.dumps(stats)
        )


def _removed(file: LakeFile, *, changed: bool) -> RemoveAction:
    now_ms = time.time_ns() // 1_000_000
    return RemoveAction(file.path, changed, now_ms, file.size, _values(file.path))


def _values(path: str) -> dict[str, str | None]:
    """The values of the partition columns, read from the folder names."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1])
    return {name: None if value == NO_VALUE else unquote(value) for name, value in pairs}


def _rows(actions: Any) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - loaded only where it is used

    found: list[dict[str, Any]] = pa.table(actions).to_pylist()
    return found


def _number(value: int | None) -> int:
    return -1 if value is None else value
