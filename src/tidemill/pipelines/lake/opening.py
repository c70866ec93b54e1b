"""Opens the lake in a folder, or creates one of the wanted format."""

from pathlib import Path

from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.lake.interface import CHECKPOINT, DELTA_LOG, ICEBERG_CATALOG, Lake
from tidemill.pipelines.lake.parquet import LOG as PARQUET_LOG
from tidemill.pipelines.lake.parquet import ParquetLake

FORMATS = ("parquet", "delta", "iceberg")


def open_lake(root: Path, wanted: str = "parquet") -> Lake:
    """A lake to write to. A folder keeps its format."""
    if wanted not in FORMATS:
        raise WrongOption(f"format {wanted} does not exist; choose one of {', '.join(FORMATS)}")
    found = format_of(root)
    if found is not None and found != wanted:
        raise WrongOption(f"{root} is a lake of format {found}, not {wanted}; give another folder")
    return _lake(root.absolute(), wanted)


def existing_lake(root: Path) -> Lake:
    """A lake to read. An archive without records yet is an empty lake, and its format is still open."""
    found = format_of(root) or (FORMATS[0] if (root / CHECKPOINT).exists() else None)
    if found is None:
        inside = sorted(str(each) for each in root.glob("*") if format_of(each))
        advice = (
            f"did you mean {inside[0]}?" if inside else "create one with: tidemill pipeline archive TOPIC --to FOLDER"
        )
        raise PipelineError(f"no lake exists at {root}; {advice}")
    return _lake(root.absolute(), found)


def format_of(root: Path) -> str | None:
    """The format of the lake in a folder; None if there is none."""
    marks = {"parquet": PARQUET_LOG, "delta": DELTA_LOG, "iceberg": ICEBERG_CATALOG}
    return next((kind for kind, mark in marks.items() if (root / mark).exists()), None)


def _lake(root: Path, kind: str) -> Lake:
    """Import Delta or Iceberg only when needed, because their libraries are an optional extra."""
    try:
        if kind == "delta":
            from tidemill.pipelines.lake.delta import DeltaLake  # noqa: PLC0415 - as above

            return DeltaLake(root)
        if kind == "iceberg":
            from tidemill.pipelines.lake.iceberg import IcebergLake  # noqa: PLC0415 - as above

            return IcebergLake(root)
    except ImportError as error:
        raise PipelineError(f"lakes of format {kind} need {error.name}; run: pip install 'tidemill[lake]'") from None
    return ParquetLake(root)
