"""An Iceberg table, written with the Python library `pyiceberg`. The tasks' files become one snapshot.

The properties of a snapshot name its query and micro-batch. Rows and properties are one atomic commit. The catalog is a
SQLite file in the lake, so the folder contains everything. Every other engine opens the table by the newest
`metadata/*.metadata.json`. Iceberg requires the partition columns in the files too. An attempt that never commits may
leave files in the folder; readers do not see them.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tidemill.durable_files import move, sync
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.core.layout import LakeLayout, layout_of, nullable
from tidemill.pipelines.lake.interface import ICEBERG_CATALOG, STAGING, CommitStep, check_rows

if TYPE_CHECKING:
    import pyarrow as pa

NAMESPACE = "lake"
QUERY, BATCH = "tidemill.query", "tidemill.batch"
OF_TOPIC = "tidemill.rows-of-topic"
"""Table property: whether the columns `partition` and `offset` are those of a topic. Old tables lack it."""


class IcebergLake:
    """One Iceberg table."""

    keeps_columns = True
    kept_as: Mapping[str, str] = MappingProxyType({"tinyint": "int", "smallint": "int"})

    def __init__(self, root: Path) -> None:
        self.root = root
        self._name = (NAMESPACE, root.name)

    def recover(self) -> None:
        """Delete the staged files."""
        shutil.rmtree(self.root / STAGING, ignore_errors=True)

    def holds(self, query: str, batch: int) -> bool:
        """Whether a snapshot of the query has this micro-batch or a later one."""
        with self._table() as table:
            found = [] if table is None else [each.summary for each in table.snapshots() if each.summary is not None]
        return any(each[QUERY] == query and int(each[BATCH] or -1) >= batch for each in found)

    def commit(self, step: CommitStep, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Move the files, then add them as one snapshot."""
        by = list((*files, *step.removed)[0].by)
        if step.query is not None:
            check_rows(self, schema, by)
        for file in files:
            move(self.root / STAGING / file.path, self.root / file.path)
            sync((self.root / file.path).parent)
        properties = {} if step.query is None else {QUERY: step.query, BATCH: str(step.batch)}
        paths = [self._place(file) for file in files]
        with self._catalog() as catalog:
            of_topic = any(file.partition >= 0 for file in files)
            table = self._find(catalog) or self._create(catalog, nullable(schema), by, of_topic=of_topic)
            if step.removed:
                self._overwrite(table, paths, {self._place(file) for file in step.removed}, properties)
            else:
                table.add_files(paths, snapshot_properties=properties)

    def _overwrite(self, table: Table, added: list[str], removed: set[str], properties: dict[str, str]) -> None:
        """Remove and add files in one snapshot."""
        gone = [task.file for task in table.scan().plan_files() if task.file.file_path in removed]
        with (
            table.transaction() as change,
            change.update_snapshot(snapshot_properties=properties).overwrite() as snapshot,
        ):
            for file in gone:
                snapshot.delete_data_file(file)
            for path in added:
                snapshot.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))

    def _place(self, file: LakeFile) -> str:
        return f"file://{self.root / file.path}"

    def layout(self) -> LakeLayout | None:
        """The columns of the table."""
        with self._table() as table:
            if table is None:
                return None
            return layout_of(table.schema().as_arrow(), [field.name for field in table.spec().fields])

    def files(self) -> list[LakeFile]:
        """All files of the current snapshot."""
        with self._table() as table:
            rows: list[dict[str, Any]] = [] if table is None else table.inspect.files().to_pylist()
            of_topic = table is not None and _of_topic(table)
        return [self._file(row, of_topic=of_topic) for row in rows]

    def strays(self) -> list[str]:
        """Always empty, because Iceberg keeps the files of former snapshots in the folder."""
        return []

    def _file(self, row: dict[str, Any], *, of_topic: bool) -> LakeFile:
        bounds = row["readable_metrics"] if of_topic else {}
        offset, partition = bounds.get("offset") or {}, bounds.get("partition") or {}
        return LakeFile(
            path=str(Path(row["file_path"].removeprefix("file://")).relative_to(self.root)),
            rows=row["record_count"],
            size=row["file_size_in_bytes"],
            partition=partition.get("lower_bound", -1),
            first=offset.get("lower_bound", -1),
            last=offset.get("upper_bound", -1),
        )

    @contextmanager
    def _catalog(self) -> Iterator[SqlCatalog]:
        """The catalog, closed afterwards: a connection left to garbage collection may block other writers."""
        catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{self.root / ICEBERG_CATALOG}", warehouse=f"file://{self.root}")
        try:
            yield catalog
        finally:
            catalog.close()

    @contextmanager
    def _table(self) -> Iterator[Table | None]:
        """The table for reading. Reading creates no catalog."""
        if (self.root / ICEBERG_CATALOG).exists():
            with self._catalog() as catalog:
                yield self._find(catalog)
        else:
            yield None

    def _find(self, catalog: SqlCatalog) -> Table | None:
        try:
            return catalog.load_table(self._name)
        except NoSuchTableError:
            return None

    def _create(self, catalog: SqlCatalog, schema: "pa.Schema", by: list[str], *, of_topic: bool) -> Table:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        properties = {OF_TOPIC: str(of_topic).lower()}
        place = f"file://{self.root}"
        with (
            catalog.create_table_transaction(self._name, schema, location=place, properties=properties) as made,
            made.update_spec() as change,
        ):
            for column in by:
                change.add_field(column, IdentityTransform(), column)
        return catalog.load_table(self._name)


def _of_topic(table: Table) -> bool:
    """Whether the rows have offsets of a topic. A table of a former version is judged by its column types."""
    known = table.properties.get(OF_TOPIC)
    if known is not None:
        return known == "true"
    types = {column.name: column.type for column in layout_of(table.schema().as_arrow()).columns}
    return (types.get("topic"), types.get("partition"), types.get("offset")) == ("string", "int", "bigint")
