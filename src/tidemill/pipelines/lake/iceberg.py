"""An Iceberg table, by the Python library `pyiceberg`: the tasks' files become one snapshot.

The properties of a snapshot say which micro-batch of which query it holds; rows and properties are one atomic commit.
The catalog is a SQLite file in the lake, so that the folder is all there is; the newest `metadata/*.metadata.json`
opens the table in every other engine. Iceberg wants the partition columns in the files too. Files that were moved into
their places by an attempt that never committed are seen by nobody.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from tidemill.pipelines.core.lake import LakeFile
from tidemill.pipelines.lake.durable import move, sync
from tidemill.pipelines.lake.interface import ICEBERG_CATALOG, STAGING

if TYPE_CHECKING:
    import pyarrow as pa

NAMESPACE = "lake"
QUERY, BATCH = "tidemill.query", "tidemill.batch"


class IcebergLake:
    """One Iceberg table."""

    keeps_columns = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._name = (NAMESPACE, root.name)

    def recover(self) -> None:
        """Forget what was staged."""
        shutil.rmtree(self.root / STAGING, ignore_errors=True)

    def holds(self, query: str, batch: int) -> bool:
        """Whether a snapshot of the query has this micro-batch or a later one."""
        table = self._table()
        found = [] if table is None else [each.summary for each in table.snapshots() if each.summary is not None]
        return any(each[QUERY] == query and int(each[BATCH] or -1) >= batch for each in found)

    def commit(self, query: str, batch: int, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Move the files, then make them one snapshot."""
        for file in files:
            move(self.root / STAGING / file.path, self.root / file.path)
            sync((self.root / file.path).parent)
        table = self._table() or self._create(schema, [part.split("=")[0] for part in files[0].path.split("/")[:-1]])
        properties = {QUERY: query, BATCH: str(batch)}
        table.add_files([f"file://{self.root / file.path}" for file in files], snapshot_properties=properties)

    def files(self) -> list[LakeFile]:
        """All files of the table as it is now."""
        table = self._table()
        rows: list[dict[str, Any]] = [] if table is None else table.inspect.files().to_pylist()
        return [self._file(row) for row in rows]

    def strays(self) -> list[str]:
        """None: Iceberg keeps the files of former snapshots in the folder."""
        return []

    def _file(self, row: dict[str, Any]) -> LakeFile:
        bounds = row["readable_metrics"]
        offset, partition = bounds.get("offset") or {}, bounds.get("partition") or {}
        return LakeFile(
            path=str(Path(row["file_path"].removeprefix("file://")).relative_to(self.root)),
            rows=row["record_count"],
            size=row["file_size_in_bytes"],
            partition=partition.get("lower_bound", -1),
            first=offset.get("lower_bound", -1),
            last=offset.get("upper_bound", -1),
        )

    def _catalog(self) -> SqlCatalog:
        uri = f"sqlite:///{self.root / ICEBERG_CATALOG}"
        return SqlCatalog(NAMESPACE, uri=uri, warehouse=f"file://{self.root}")

    def _table(self) -> Table | None:
        if not (self.root / ICEBERG_CATALOG).exists():
            return None
        try:
            return self._catalog().load_table(self._name)
        except NoSuchTableError:
            return None

    def _create(self, schema: "pa.Schema", by: list[str]) -> Table:
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(NAMESPACE)
        table = catalog.create_table(self._name, schema, location=f"file://{self.root}")
        with table.update_spec() as change:
            for column in by:
                change.add_field(column, IdentityTransform(), column)
        return table
