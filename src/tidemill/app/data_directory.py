"""Whose data directory this is: a small file that says which broker of which cluster keeps its data in it.

It is written when the cluster is known and before a record is, and read at every start. A directory of another broker,
of another cluster or of a newer version of Tidemill is refused before anything in it is touched. So is a directory that
holds data and lost this file, and one whose file of timelines is gone: a broker never starts empty over lost data.
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
"""How data directories are laid out; a later one is not understood by this version."""


log = structlog.get_logger("tidemill.app")


@dataclass(frozen=True, slots=True)
class _Owner:
    format: int
    directory: str
    node_id: int
    cluster: str
    timelines: str = ""
    """The SQLite file of timelines that the broker has opened, relative to the directory if it is in it."""
    manifest: bool = False
    """Whether the directory has a manifest of its partitions: then its absence is a loss."""


class DataDirectory:
    """A data directory and whose it is."""

    def __init__(self, folder: Path, node_id: int) -> None:
        self._path = folder / FILE
        found = self._read_file(self._path)
        if found is None and (data := data_without_owner(folder)):
            raise InvalidConfig(
                f"{self._path} is missing, and {folder} holds {data}; restore it from a backup, or see what can be "
                f"done with: tidemill repair --data-dir {folder}"
            )
        self._owner = found or _Owner(FORMAT, str(uuid4()), node_id, "")
        if self._owner.format > FORMAT:
            raise InvalidConfig(
                f"the data directory {folder} has format {self._owner.format}, this version knows {FORMAT}; "
                "start the version that wrote it, or a newer one"
            )
        if self._owner.node_id != node_id:
            owner = self._owner.node_id
            raise InvalidConfig(f"the data directory belongs to broker {owner}; start with --node-id {owner}")

    @staticmethod
    def owner_of(folder: Path) -> int:
        """The broker whose directory it is; 0, the default of a single broker, when the directory does not say."""
        owner = DataDirectory._read_file(folder / FILE)
        return owner.node_id if owner is not None else 0

    @property
    def id(self) -> UUID:
        """What no other directory has."""
        return UUID(self._owner.directory)

    def belong(self, cluster: str) -> None:
        """Belong to this cluster from now on; refuse another one."""
        if self._owner.cluster and self._owner.cluster != cluster:
            raise InvalidConfig(
                f"the data directory belongs to cluster {self._owner.cluster}, and --coordination leads to {cluster}; "
                "choose the right one of either"
            )
        if not self._owner.cluster:
            self._owner = replace(self._owner, cluster=cluster)
            self._write()

    def check_timelines(self, path: Path) -> None:
        """Refuse to begin a new file of timelines where the one that was opened before is gone."""
        if self._owner.timelines == self._name(path) and not path.exists():
            raise InvalidConfig(
                f"{path} is missing: the timelines in it and their messages; restore it from a backup, or accept the "
                f"loss with: tidemill repair --data-dir {self._path.parent}"
            )

    def note_timelines(self, path: Path) -> None:
        """Remember the file of timelines."""
        self._note(replace(self._owner, timelines=self._name(path)))

    @property
    def had_manifest(self) -> bool:
        """Whether the directory had a manifest of its partitions at an earlier start."""
        return self._owner.manifest

    def note_manifest(self) -> None:
        """Remember that there is a manifest, if there is one."""
        self._note(replace(self._owner, manifest=(self._path.parent / MANIFEST).exists()))

    def _note(self, owner: _Owner) -> None:
        """Write what has changed; a full disk only makes the next start check less."""
        if owner == self._owner:
            return
        self._owner = owner
        try:
            self._write()
        except OSError as error:
            log.warning("node.json not written", error=str(error))

    def _name(self, path: Path) -> str:
        """The name in the directory, which may be moved, or the path of a file elsewhere."""
        folder = self._path.parent.absolute()
        return str(path.relative_to(folder) if path.is_relative_to(folder) else path)

    @staticmethod
    def lost_manifest(folder: Path) -> bool:
        """Whether the directory had a manifest of its partitions that is gone."""
        owner = DataDirectory._read_file(folder / FILE)
        return owner is not None and owner.manifest and not (folder / MANIFEST).exists()

    @staticmethod
    def lost_timelines(folder: Path) -> str:
        """The file of timelines that was opened before and is gone; empty when none is."""
        owner = DataDirectory._read_file(folder / FILE)
        return owner.timelines if owner and owner.timelines and not (folder / owner.timelines).exists() else ""

    @staticmethod
    def forget_timelines(folder: Path) -> None:
        """Accept that the file of timelines is gone."""
        directory = DataDirectory(folder, DataDirectory.owner_of(folder))
        directory._owner = replace(directory._owner, timelines="")
        directory._write()

    @staticmethod
    def write_new(folder: Path, node_id: int, cluster: str) -> None:
        """Write the file again for a directory that lost it, under a new id."""
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
            raise InvalidConfig(f"{path} cannot be read: {error}; restore it from a copy") from None

    def _write(self) -> None:
        replace_file(self._path, json.dumps(asdict(self._owner)).encode() + b"\n")


def data_without_owner(folder: Path) -> str:
    """What there is in a directory that a broker writes only after node.json; empty when there is nothing."""
    streams = folder / STREAMS
    topics = sum(each.is_dir() for each in streams.iterdir()) if streams.is_dir() else 0
    if topics:
        return f"records of {topics} topics"
    return TIMELINES if (folder / TIMELINES).exists() else ""
