"""What a lake can do, whatever its format."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidemill.pipelines.core.lake import LakeFile

if TYPE_CHECKING:
    import pyarrow as pa

CHECKPOINT = "_checkpoint"
STAGING = "_staging"
"""Readers of folders of Parquet leave out names that begin with an underscore."""

ICEBERG_CATALOG = "_catalog.db"
DELTA_LOG = "_delta_log"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How Hive, and everything since, spells a missing value in the name of a folder."""


class Step(NamedTuple):
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

    def recover(self) -> None:
        """Finish what a commit before a crash had begun, and forget what never was committed."""

    def holds(self, query: str, batch: int) -> bool:
        """Whether the rows of this micro-batch are here."""

    def commit(self, step: Step, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Make staged files visible, and those that the step removes invisible, all at once."""

    def files(self) -> list[LakeFile]:
        """All that is visible."""

    def strays(self) -> list[str]:
        """Files that are in the folder and were never committed."""
