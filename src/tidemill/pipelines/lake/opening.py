"""Finds the lake of a folder, or makes one of the wanted format."""

from pathlib import Path

from tidemill.pipelines.core.errors import PipelineError, WrongOption
from tidemill.pipelines.lake.interface import Lake
from tidemill.pipelines.lake.parquet import LOG as PARQUET_LOG
from tidemill.pipelines.lake.parquet import ParquetLake

FORMATS = ("parquet", "delta")
DELTA_LOG = "_delta_log"


def open_lake(root: Path, wanted: str = "parquet") -> Lake:
    """A lake to write to; a folder keeps the format that it has."""
    if wanted not in FORMATS:
        raise WrongOption(f"there is no format {wanted}; there are {', '.join(FORMATS)}")
    found = format_of(root)
    if found is not None and found != wanted:
        raise WrongOption(f"{root} is a lake of format {found}, not {wanted}")
    return _lake(root.absolute(), wanted)


def existing_lake(root: Path) -> Lake:
    """A lake to read."""
    found = format_of(root)
    if found is None:
        raise PipelineError(f"there is no lake at {root}; make one with: tidemill pipeline archive TOPIC --to FOLDER")
    return _lake(root.absolute(), found)


def format_of(root: Path) -> str | None:
    """What is in a folder."""
    logs = {"parquet": PARQUET_LOG, "delta": DELTA_LOG}
    return next((kind for kind, log in logs.items() if (root / log).is_dir()), None)


def _lake(root: Path, kind: str) -> Lake:
    if kind == "parquet":
        return ParquetLake(root)
    try:
        from tidemill.pipelines.lake.delta import DeltaLake  # noqa: PLC0415 - an extra that need not be installed
    except ImportError:
        raise PipelineError("Delta tables need deltalake: pip install 'tidemill[lake]'") from None
    return DeltaLake(root)
