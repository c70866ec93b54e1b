"""What the desk asks of the engine that answers questions."""

from collections.abc import Mapping
from typing import Protocol

from tidemill.broker.sql.guard import Vocabulary
from tidemill.broker.sql.rows import ArrowRows
from tidemill.broker.sql.tree import Node


class SqlEngine(Protocol):
    """An engine inside of this process. What it refuses is a SqlRefused."""

    has_messages: bool
    """Whether it keeps records itself, in a table `messages` of the database `tidemill`."""

    async def vocabulary(self) -> Vocabulary:
        """The functions that may be called."""

    async def parse(self, sql: str) -> Node:
        """The tree of one statement."""

    async def write(self, tree: Node) -> str:
        """The text of a tree."""

    async def run(self, sql: str, rows: Mapping[str, ArrowRows], form: str) -> bytes:
        """What a question finds, in one of ClickHouse's formats; `python(name)` in it stands for these rows."""

    async def close(self) -> None:
        """Let go of the engine."""
