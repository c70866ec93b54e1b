"""The documents of the overview: what runs, how much, and what needs attention."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.cluster import ClusterBroker
from tidemill.wire.http.document import Document, Input

MINUTES_MAX = 30
Severity = Literal["critical", "warning", "note"]


class AttentionItem(Document, frozen=True, kw_only=True):
    """One thing that an operator should look at, with the page that shows more and the next step."""

    severity: Severity
    title: str
    detail: str
    link: str
    next_step: str


class ClusterOverview(Document, frozen=True, kw_only=True):
    """The whole cluster in one document."""

    cluster_id: str
    controller: int
    brokers: list[ClusterBroker]
    topics: int
    partitions: int
    without_leader: int
    under_replicated: int
    under_min_isr: int
    groups: int
    timelines: int
    log_bytes: int
    connections: int
    attention: list[AttentionItem]
    unreachable_brokers: list[int]


class HistoryQuery(Input, frozen=True, kw_only=True):
    """The time that a history goes back, and the broker that it is of; without one it is of the cluster."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=MINUTES_MAX)] = 10
    broker: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class HistoryQuestion(Document, frozen=True, kw_only=True):
    """The slots of some series that one broker asks another for."""

    series: list[str]
    last_slot: int
    slots: int
    keys: list[str] | None = None
    """The topics that series by topic are wanted of; null asks for all that have values."""


class HistoryPart(Document, frozen=True, kw_only=True):
    """The values of one broker by series and key, oldest first; null where it has none."""

    series: dict[str, dict[str, list[float | None]]]
    largest: list[str]
    """The series whose value for the cluster is the largest one; that of the others is the sum."""


class HistoryValues(Document, frozen=True, kw_only=True):
    """The values of one series. The key is empty, or the name of a topic."""

    name: str
    key: str
    values: list[float | None]


class History(Document, frozen=True, kw_only=True):
    """Values over time, oldest first. A rate is per second, over the interval that ends at its time."""

    times_ms: list[int]
    interval_ms: int
    series: list[HistoryValues]
    unreachable_brokers: list[int]
