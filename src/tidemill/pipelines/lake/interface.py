"""The interface of a lake, for every format."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.core.layout import LakeLayout, check_fits, layout_of

if TYPE_CHECKING:
    import pyarrow as pa

CHECKPOINT = "_checkpoint"
STAGING = "_staging"
"""Readers of Parquet folders ignore names that begin with an underscore."""

ICEBERG_CATALOG = "_catalog.db"
DELTA_LOG = "_delta_log"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Hive's spelling of a missing value in a folder name, which all later tools use."""


class CommitStep(NamedTuple):
    """The reason of a commit: a micro-batch of a query, or, without a query, the same rows in other files."""

    query: str | None
    batch: int = -1
    removed: tuple[LakeFile, ...] = ()


class Lake(Protocol):
    """A folder of Parquet files that grows by commits."""

    root: Path

    @property
    def keeps_columns(self) -> bool:
        """Whether the partition columns are in the files too, not only in the folder names."""

    kept_as: Mapping[str, str]
    """Spark types that the format stores as other types."""

    def layout(self) -> LakeLayout | None:
        """The columns; None before the first rows."""

    def recover(self) -> None:
        """Finish a commit that a crash interrupted, and delete everything that was never committed."""

    def holds(self, query: str, batch: int) -> bool:
        """Whether the lake has the rows of this micro-batch."""

    def commit(self, step: CommitStep, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Make staged files visible and the step's removed files invisible, atomically.

        Raises SchemaChanged, and changes nothing, when the schema differs from that of the lake. A step without a query
        adds no rows, so its schema is not checked.
        """

    def files(self) -> list[LakeFile]:
        """All visible files."""

    def strays(self) -> list[str]:
        """Files in the folder that were never committed."""


def never_null(lake: Lake) -> tuple[str, ...]:
    """The columns that the files of the lake must declare as never null."""
    kept = lake.layout()
    return () if kept is None else kept.never_null


def check_rows(lake: Lake, schema: "pa.Schema", by: Sequence[str]) -> None:
    """Refuse rows whose columns are not those of the lake."""
    check_fits(str(lake.root), lake.layout(), layout_of(schema, by, lake.kept_as))
