"""What a lake can do, whatever its format."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidemill.pipelines.core.lake import LakeFile
from tidemill.pipelines.core.layout import LakeLayout, check_fits, layout_of

if TYPE_CHECKING:
    import pyarrow as pa

CHECKPOINT = "_checkpoint"
STAGING = "_staging"
"""Readers of folders of Parquet leave out names that begin with an underscore."""

ICEBERG_CATALOG = "_catalog.db"
DELTA_LOG = "_delta_log"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How Hive, and everything since, spells a missing value in the name of a folder."""


class CommitStep(NamedTuple):
    """What a commit is for: a micro-batch of a query, or the same rows in other files when there is no query."""

    query: str | None
    batch: int = -1
    removed: tuple[LakeFile, ...] = ()


class Lake(Protocol):
    """A folder of Parquet files that grows by commits."""

    root: Path

    @property
    def keeps_columns(self) -> bool:
        """Whether the columns that are the names of folders are in the files too."""

    kept_as: Mapping[str, str]
    """Types, in Spark's names, that the format keeps as others."""

    def layout(self) -> LakeLayout | None:
        """The columns; None before the first rows."""

    def recover(self) -> None:
        """Finish what a commit before a crash had begun, and forget what never was committed."""

    def holds(self, query: str, batch: int) -> bool:
        """Whether the rows of this micro-batch are here."""

    def commit(self, step: CommitStep, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Make staged files visible, and those that the step removes invisible, all at once.

        SchemaChanged, and nothing is changed, when the schema is not that of the lake. A step without a query adds no
        rows, and its schema is not looked at.
        """

    def files(self) -> list[LakeFile]:
        """All that is visible."""

    def strays(self) -> list[str]:
        """Files that are in the folder and were never committed."""


def never_null(lake: Lake) -> tuple[str, ...]:
    """The columns that the files of the lake must declare as never null."""
    kept = lake.layout()
    return () if kept is None else kept.never_null


def check_rows(lake: Lake, schema: "pa.Schema", by: Sequence[str]) -> None:
    """Refuse rows whose columns are not those of the lake."""
    check_fits(str(lake.root), lake.layout(), layout_of(schema, by, lake.kept_as))
