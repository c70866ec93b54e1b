"""The owner file of a data directory, `node.json`: the broker and the cluster that the data belongs to.

The broker writes it when the cluster is known, before the first record, and reads it at every start. The start fails,
before it touches any file, for a directory of another broker, of another cluster or of a newer Tidemill version. It
also fails when data exists without this file, or when the timelines file is missing. A broker never starts empty over
lost data.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import UUID, uuid4

import structlog

from tidemill.broker.manifest import FILE as MANIFEST
from tidemill.broker.topic_directories import STREAMS
from tidemill.durable_files import replace_file
from tidemill.model.errors import InvalidConfig

FILE = "node.json"
TIMELINES = "timelines.db"
FORMAT = 1
"""The layout version of data directories. This version cannot read a later one."""


log = structlog.get_logger("tidemill.app")


@dataclass(frozen=True, slots=True)
class _Owner:
    format: int
    directory: str
    node_id: int
    cluster: str
    timelines: str = ""
    """The SQLite file of timelines that the broker has opened, relative to the directory if it is inside."""
    manifest: bool = False
    """Whether the directory has a manifest of its partitions. If it has, a missing manifest is data loss."""


class DataDirectory:
    """A data directory and its owner."""

    def __init__(self, folder: Path, node_id: int) -> None:
        self._path = folder / FILE
        found = self._read_file(self._path)
        if found is None and (data := data_without_owner(folder)):
            raise InvalidConfig(
                f"{self._path} is missing, and {folder} holds {data}; restore it from a backup, or list the repairs "
                f"with: tidemill repair --data-dir {folder}"
            )
        self._owner = found or _Owner(FORMAT, str(uuid4()), node_id, "")
        if self._owner.format > FORMAT:
            raise InvalidConfig(
                f"the data directory {folder} has format {self._owner.format}, and this version supports up to "
                f"{FORMAT}; start the version that wrote it, or a newer one"
            )
        if self._owner.node_id != node_id:
            owner = self._owner.node_id
            raise InvalidConfig(f"the data directory belongs to broker {owner}; start with --node-id {owner}")

    @staticmethod
    def owner_of(folder: Path) -> int:
        """The node id of the owner. 0, the default of a single broker, when the directory has no owner file."""
        owner = DataDirectory._read_file(folder / FILE)
        return owner.node_id if owner is not None else 0

    @property
    def id(self) -> UUID:
        """The unique id of the directory."""
        return UUID(self._owner.directory)

    def belong(self, cluster: str) -> None:
        """Bind the directory to this cluster. InvalidConfig if it belongs to another one."""
        if self._owner.cluster and self._owner.cluster != cluster:
            raise InvalidConfig(
                f"the data directory belongs to cluster {self._owner.cluster}, and --coordination names cluster "
                f"{cluster}; correct --data-dir or --coordination"
            )
        if not self._owner.cluster:
            self._owner = replace(self._owner, cluster=cluster)
            self._write()

    def check_timelines(self, path: Path) -> None:
        """Reject a missing timelines file that an earlier start has opened, so that no empty one replaces it."""
        if self._owner.timelines == self._name(path) and not path.exists():
            raise InvalidConfig(
                f"{path} is missing, with its timelines and their messages; restore it from a backup, or accept the "
                f"loss with: tidemill repair --data-dir {self._path.parent}"
            )

    def note_timelines(self, path: Path) -> None:
        """Record the path of the timelines file."""
        self._note(replace(self._owner, timelines=self._name(path)))

    @property
    def had_manifest(self) -> bool:
        """Whether the directory had a manifest of its partitions at an earlier start."""
        return self._owner.manifest

    def note_manifest(self) -> None:
        """Record whether the directory has a manifest."""
        self._note(replace(self._owner, manifest=(self._path.parent / MANIFEST).exists()))

    def _note(self, owner: _Owner) -> None:
        """Write the owner file if it changed. A failed write (full disk) only makes the next start check less."""
        if owner == self._owner:
            return
        self._owner = owner
        try:
            self._write()
        except OSError as error:
            log.warning("owner_file_write_failed", file=str(self._path), error=str(error))

    def _name(self, path: Path) -> str:
        """The path relative to the directory, which may be moved, or the absolute path of a file elsewhere."""
        folder = self._path.parent.absolute()
        return str(path.relative_to(folder) if path.is_relative_to(folder) else path)

    @staticmethod
    def lost_manifest(folder: Path) -> bool:
        """Whether the directory had a manifest of its partitions that is missing now."""
        owner = DataDirectory._read_file(folder / FILE)
        return owner is not None and owner.manifest and not (folder / MANIFEST).exists()

    @staticmethod
    def lost_timelines(folder: Path) -> str:
        """The timelines file that an earlier start opened and that is missing now. Empty when none is missing."""
        owner = DataDirectory._read_file(folder / FILE)
        return owner.timelines if owner and owner.timelines and not (folder / owner.timelines).exists() else ""

    @staticmethod
    def forget_timelines(folder: Path) -> None:
        """Accept the loss of the timelines file."""
        directory = DataDirectory(folder, DataDirectory.owner_of(folder))
        directory._owner = replace(directory._owner, timelines="")
        directory._write()

    @staticmethod
    def write_new(folder: Path, node_id: int, cluster: str) -> None:
        """Write a new owner file, with a new id, for a directory that lost it."""
        directory = object.__new__(DataDirectory)
        directory._path = folder / FILE
        directory._owner = _Owner(FORMAT, str(uuid4()), node_id, cluster)
        directory._write()

    @staticmethod
    def _read_file(path: Path) -> _Owner | None:
        try:
            read = json.loads(path.read_text("utf-8"))
            directory, timelines = str(UUID(read["directory"])), str(read.get("timelines", ""))
            manifest = bool(read.get("manifest", False))
            return _Owner(int(read["format"]), directory, int(read["node_id"]), read["cluster"], timelines, manifest)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidConfig(f"{path} cannot be read: {error}; restore it from a backup") from None

    def _write(self) -> None:
        replace_file(self._path, json.dumps(asdict(self._owner)).encode() + b"\n")


def data_without_owner(folder: Path) -> str:
    """Describe the data in a directory that a broker writes only after node.json. Empty when there is none."""
    streams = folder / STREAMS
    topics = sum(each.is_dir() for each in streams.iterdir()) if streams.is_dir() else 0
    if topics:
        return f"records of {topics} topics"
    return TIMELINES if (folder / TIMELINES).exists() else ""
