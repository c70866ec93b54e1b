"""The dependencies of SQL: an engine that runs queries, and a broker whose state is shown as tables."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from tidemill.cluster.core.image import Image, Topic
from tidemill.cluster.core.registration import BrokerAddress
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.shares.core.share_position import SharePosition
from tidemill.sql.core.allowlist import Vocabulary
from tidemill.sql.core.syntax_tree import Node
from tidemill.sql.rows import ArrowRows
from tidemill.streams.partition import Partition
from tidemill.timelines.dispatcher import Dispatcher


class SqlSession(Protocol):
    """The engine for one query.

    It raises SqlRefused for a rejected query; a cancelled call ends the engine's process.
    """

    async def vocabulary(self) -> Vocabulary:
        """Return the functions that may be called."""

    async def parse(self, sql: str) -> Node:
        """Parse one statement into a tree."""

    async def write(self, tree: Node) -> str:
        """Return the text of a tree."""

    async def run(
        self, sql: str, rows: Mapping[str, ArrowRows], form: str, settings: Mapping[str, int] | None = None
    ) -> bytes:
        """Return the result in one of ClickHouse's formats; `python(name)` in the query refers to these rows.

        The settings of the engine are ours, and hold for this query.
        """

    def release(self) -> None:
        """Release the session after its query."""


class SqlEngine(Protocol):
    """The engine, outside of this process."""

    async def acquire(self) -> SqlSession:
        """Return a session, which must be released. Raises SqlUnavailable when there is none."""

    async def close(self) -> None:
        """End the engine, also while a query runs."""


class TopicStorage(Protocol):
    """The storage of topic records."""

    def is_in_tables(self, topic: str) -> bool:
        """Whether the records are rows of ClickHouse."""


class OpenPartitions(Protocol):
    """The partitions that this broker has opened."""

    @property
    def store(self) -> TopicStorage:
        """The storage of their records."""

    def find(self, topic: str, index: int) -> Partition | None:
        """Return the partition if it is open here."""

    def trouble(self, topic: str, index: int) -> BaseException | None:
        """Return why a partition cannot be used, if so."""


class ClusterState(Protocol):
    """The topics and brokers of the cluster."""

    @property
    def image(self) -> Image:
        """All topics and brokers."""

    def brokers(self) -> Sequence[BrokerAddress]:
        """Every broker that clients may connect to."""

    def topics(self) -> Sequence[Topic]:
        """Every topic."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id."""


class KnownShares(Protocol):
    """What this broker knows of share groups."""

    def now(self) -> Sequence[SharePosition]:
        """Where they are in each partition."""


class BrokerState(Protocol):
    """The broker whose state is shown as tables."""

    groups: GroupCoordinator
    timelines: Dispatcher | None

    @property
    def node_id(self) -> int:
        """The number of the broker."""

    @property
    def view(self) -> ClusterState:
        """The cluster as the broker knows it."""

    @property
    def partitions(self) -> OpenPartitions:
        """The partitions of this broker."""

    @property
    def share_positions(self) -> KnownShares:
        """What it knows of share groups."""
