"""The documents of topics."""

from typing import Literal

from tidemill.wire.http.document import Document, PageQuery


class TopicQuery(PageQuery, frozen=True, kw_only=True):
    """Which topics are listed."""

    sort: Literal["name", "partitions", "records", "bytes"] = "name"
    internal: bool = False


class TopicRow(Document, frozen=True, kw_only=True):
    """One topic of a list. Records and bytes are null while the leader of a partition does not answer."""

    topic: str
    internal: bool
    partitions: int
    replicas: int
    records: int | None
    bytes: int | None
    under_replicated: int


class TopicPage(Document, frozen=True, kw_only=True):
    """A page of topics."""

    topics: list[TopicRow]
    total: int
    unreachable_brokers: list[int]
    """Brokers that did not answer, whose numbers are missing."""


class TopicSizesQuery(Document, frozen=True, kw_only=True):
    """The topics whose sizes one broker asks another for."""

    topics: list[str]


class TopicSizes(Document, frozen=True, kw_only=True):
    """Records and bytes of the partitions of each topic that one broker leads."""

    sizes: dict[str, tuple[int, int]]
