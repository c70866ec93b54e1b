"""Whose data directory this is: a small file that says which broker of which cluster keeps its data in it.

It is written once, when the cluster is known and before a record is, and read at every start. A directory of another
broker, of another cluster or of a newer version of Tidemill is refused before anything in it is touched.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import UUID, uuid4

from tidemill.model.errors import InvalidConfig

FILE = "node.json"
FORMAT = 1
"""How data directories are laid out; a later one is not understood by this version."""


@dataclass(frozen=True, slots=True)
class _Owner:
    format: int
    directory: str
    node_id: int
    cluster: str


class DataDirectory:
    """A data directory and whose it is."""

    def __init__(self, folder: Path, node_id: int) -> None:
        self._path = folder / FILE
        self._owner = self._read_file(self._path) or _Owner(FORMAT, str(uuid4()), node_id, "")
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

    @staticmethod
    def _read_file(path: Path) -> _Owner | None:
        try:
            read = json.loads(path.read_text("utf-8"))
            return _Owner(int(read["format"]), str(UUID(read["directory"])), int(read["node_id"]), read["cluster"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidConfig(f"{path} cannot be read: {error}; restore it from a copy") from None

    def _write(self) -> None:
        beside = self._path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self._owner)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self._path)
        handle = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
