"""The users of a broker that is stopped, or of a cluster whose etcd is given: the first one, and super users.

A running broker changes users by Kafka's protocol, which cannot name super users. These changes go to coordination
itself. In a data directory they are made under the lock of the directory, so that no broker runs meanwhile.
"""

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidemill.app.data_directory import FILE
from tidemill.app.engines import open_coordination_at
from tidemill.app.lock import LOCK, DataDirInUse, DataDirLock
from tidemill.broker.identity import CLUSTER_ID
from tidemill.cluster.interface import Coordination
from tidemill.cluster.journal import JOURNAL
from tidemill.model.errors import InvalidConfig
from tidemill.security.users import UserRecord, Users

LOCAL = "local:"
NOT_DATA = frozenset({LOCK, "lost+found"})
"""Names that an empty directory may have: of an earlier lock, and of a new file system."""

T = TypeVar("T")


class StoredUsers(NamedTuple):
    """The users in one place: a data directory, or etcd at `coordination`. Every call opens and closes it."""

    data_dir: Path
    coordination: str = LOCAL

    def is_new(self) -> bool:
        """Whether this is a data directory that a broker can start with, and that has no users."""
        if self.coordination != LOCAL:
            return False
        check_directory(self.data_dir, creates=True)
        return not (self.data_dir / JOURNAL).exists()

    def has_cluster(self) -> bool:
        """Whether a broker has started with this address of etcd. False after a typing error in its folder."""

        async def look() -> bool:
            async with self._opened(creates=False) as store:
                return await store.get(CLUSTER_ID) is not None

        return asyncio.run(look())

    def all(self) -> dict[str, UserRecord]:
        """The users by name."""

        async def read(users: Users) -> dict[str, UserRecord]:
            return {name: found for name in users.names() if (found := users.find(name)) is not None}

        return self._run(read)

    def create(self, name: str, record: UserRecord) -> bool:
        """Add a user; False when there is one of this name. A missing data directory is created."""
        return self._run(lambda users: users.create(name, record), creates=True)

    def set_password(self, name: str, record: UserRecord) -> None:
        """Replace the credentials of a user; whether it is a super user stays."""
        self._run(lambda users: users.set_password(name, record))

    def set_super(self, name: str, *, is_super: bool) -> None:
        """Let a user do everything, or no longer."""
        self._run(lambda users: users.set_super(name, is_super=is_super))

    def remove(self, name: str) -> bool:
        """Remove a user; False when there is none of this name."""
        return self._run(lambda users: users.remove(name))

    def _run(self, work: Callable[[Users], Awaitable[T]], *, creates: bool = False) -> T:
        async def run() -> T:
            async with self._opened(creates=creates) as store:
                users = Users(store)
                await users.load()
                return await work(users)

        return asyncio.run(run())

    @asynccontextmanager
    async def _opened(self, *, creates: bool) -> AsyncIterator[Coordination]:
        lock: DataDirLock | None = None
        if self.coordination == LOCAL:
            check_directory(self.data_dir, creates=creates)
            lock = _lock(self.data_dir)
        try:
            store = await open_coordination_at(self.coordination, self.data_dir)
            try:
                yield store
            finally:
                await store.close()
        finally:
            if lock is not None:
                lock.release()


def check_directory(folder: Path, *, creates: bool) -> None:
    """Raise InvalidConfig for a directory that no broker has used, that is of another user, or of a cluster on etcd."""
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    if JOURNAL not in names:
        if FILE in names:
            raise InvalidConfig(
                f"the broker of {folder} keeps its users in etcd; name it with --coordination etcd://..."
            )
        if not creates:
            raise InvalidConfig(f"{folder} has no users: no broker has run there; correct --data-dir")
        if others := sorted(names - NOT_DATA):
            raise InvalidConfig(f"{folder} is no data directory: it has {others[0]}; name a new or an empty directory")
    if folder.exists() and os.geteuid() == 0 and (owner := folder.stat().st_uid) != 0:
        raise InvalidConfig(
            f"{folder} belongs to user {_name_of(owner)}, who could not read files of root; run this as that user, "
            f"for example with: sudo -u '{_name_of(owner)}' tidemill user ..."
        )


def _name_of(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"#{user_id}"


def _lock(folder: Path) -> DataDirLock:
    try:
        return DataDirLock(folder)
    except DataDirInUse:
        raise DataDirInUse(
            f"a broker runs on {folder}; stop it first, or change users through it with --bootstrap host:port"
        ) from None
