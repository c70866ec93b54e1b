"""What SQL needs: an engine that runs queries, and a broker whose state it shows as tables."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from tidemill.cluster.core.image import Image, Topic
from tidemill.cluster.core.registration import BrokerAddress
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.sql.core.allowlist import Vocabulary
from tidemill.sql.core.syntax_tree import Node
from tidemill.sql.rows import ArrowRows
from tidemill.streams.partition import Partition
from tidemill.timelines.dispatcher import Dispatcher


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


class TopicStorage(Protocol):
    """Where the records of topics are kept."""

    def is_in_tables(self, topic: str) -> bool:
        """Whether the records are rows of ClickHouse."""


class OpenPartitions(Protocol):
    """The partitions that this broker has opened."""

    @property
    def store(self) -> TopicStorage:
        """Where their records are kept."""

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition if it is open here."""

    def trouble(self, topic: str, index: int) -> BaseException | None:
        """Why a partition cannot be used, if so."""


class BrokerState(Protocol):
    """The broker whose state is shown as tables."""

    node_id: int
    groups: GroupCoordinator
    timelines: Dispatcher | None

    @property
    def image(self) -> Image:
        """The topics and brokers of the cluster."""

    @property
    def partitions(self) -> OpenPartitions:
        """The partitions of this broker."""

    def brokers(self) -> Sequence[BrokerAddress]:
        """Every broker that clients may connect to."""

    def topics(self) -> Sequence[Topic]:
        """Every topic."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic of this id."""
