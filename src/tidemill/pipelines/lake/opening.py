"""Finds the lake of a folder, or makes one of the wanted format."""

from pathlib import Path

from tidemill.pipelines.core.errors import PipelineError, WrongOption
from tidemill.pipelines.lake.interface import Lake
from tidemill.pipelines.lake.parquet import LOG, ParquetLake

FORMATS = ("parquet",)


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
    return "parquet" if (root / LOG).is_dir() else None


def _lake(root: Path, kind: str) -> Lake:
    del kind
    return ParquetLake(root)
