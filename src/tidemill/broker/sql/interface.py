"""What the desk needs of the engine that runs queries."""

from collections.abc import Mapping
from typing import Protocol

from tidemill.broker.sql.guard import Vocabulary
from tidemill.broker.sql.rows import ArrowRows
from tidemill.broker.sql.tree import Node


class SqlSession(Protocol):
    """The engine for one query. What it refuses is a SqlRefused; a cancelled call ends the engine's process."""

    async def vocabulary(self) -> Vocabulary:
        """The functions that may be called."""

    async def parse(self, sql: str) -> Node:
        """The tree of one statement."""

    async def write(self, tree: Node) -> str:
        """The text of a tree."""

    async def run(self, sql: str, rows: Mapping[str, ArrowRows], form: str) -> bytes:
        """The result of a query in one of ClickHouse's formats; `python(name)` in it stands for these rows."""

    def release(self) -> None:
        """Give the session back after its query."""


class SqlEngine(Protocol):
    """The engine, outside of this process."""

    async def acquire(self) -> SqlSession:
        """A session, which has to be released; SqlUnavailable when there is none to be had."""

    async def close(self) -> None:
        """End the engine, also while a query runs."""
