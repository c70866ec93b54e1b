"""What a lake can do, whatever its format."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

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

    def commit(self, query: str, batch: int, files: Sequence[LakeFile], schema: "pa.Schema") -> None:
        """Make staged files visible, all at once."""

    def files(self) -> list[LakeFile]:
        """All that is visible."""

    def strays(self) -> list[str]:
        """Files that are in the folder and were never committed."""
