"""The options of producers and consumers: names, defaults, and checks before anything is opened.

Each list exists twice: as the keywords of a call, for editors and type checkers, and as the resulting values.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from tidemill.client.kafka.errors import ClientError, InvalidClientOption
from tidemill.client.rpc import CONNECT_TIMEOUT_MS
from tidemill.model.topics import check_topic_name
from tidemill.records.hashing import CONSISTENT_RANDOM, PARTITIONERS
from tidemill.wire.grpc import broker_pb2 as wire

METADATA_REFRESH_MS = 30_000
BACKLOG_FACTOR = 10
"""A sender waits when this many times the buffer is undelivered."""
ACKS = {"all": wire.ACKS_ALL, "1": wire.ACKS_LEADER, 1: wire.ACKS_LEADER}
RESETS = {"earliest": (wire.RESET_EARLIEST, -2), "latest": (wire.RESET_LATEST, -1)}
KINDS = {int: "a whole number", bool: "True or False", str: "a str"}
EXAMPLE = "Consumer(address, group='mailer', topics=['orders'])"


class ProducerKeywords(TypedDict, total=False):
    """The options of a producer as keywords."""

    partitions: int
    replication_factor: int
    settings: Mapping[str, str] | None
    create: bool
    acks: Literal["all", "1", 1]
    idempotent: bool
    linger_ms: int
    buffer_records: int
    call_records: int
    metadata_refresh_ms: int
    delivery_timeout_ms: int
    connect_timeout_ms: int
    partitioner: str


class ProducerOptions(NamedTuple):
    """The resulting options of a producer."""

    partitions: int = 0
    replication_factor: int = 0
    settings: Mapping[str, str] | None = None
    create: bool = True
    acks: Literal["all", "1", 1] = "all"
    idempotent: bool = True
    linger_ms: int = 100
    buffer_records: int = 1_000
    call_records: int = 100
    metadata_refresh_ms: int = METADATA_REFRESH_MS
    delivery_timeout_ms: int = 120_000
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    partitioner: str = CONSISTENT_RANDOM

    @property
    def backlog(self) -> int:
        """The number of undelivered records at which a sender must wait."""
        return BACKLOG_FACTOR * self.buffer_records


class ConsumerKeywords(TypedDict, total=False):
    """The options of a consumer as keywords."""

    reset: Literal["earliest", "latest"]
    auto_commit: bool
    commit_records: int
    commit_interval_ms: int
    poll_records: int
    poll_interval_ms: int
    buffer_records: int
    rebalance_timeout_ms: int
    max_handling_ms: int
    skip_unreadable: bool
    connect_timeout_ms: int
    client_id: str
    rack: str
    follow_hints: bool


class ConsumerOptions(NamedTuple):
    """The resulting options of a consumer."""

    reset: Literal["earliest", "latest"] = "earliest"
    auto_commit: bool = True
    commit_records: int = 100
    commit_interval_ms: int = 500
    poll_records: int = 100
    poll_interval_ms: int = 500
    buffer_records: int = 256
    rebalance_timeout_ms: int = 60_000
    max_handling_ms: int = 300_000
    skip_unreadable: bool = False
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    client_id: str = "tidemill"
    rack: str = ""
    follow_hints: bool = True
    """Use the brokers that the cluster names; otherwise stay at the given address, if that broker serves messages."""


Chosen = TypeVar("Chosen", ProducerOptions, ConsumerOptions)


def producer_options(topic: str, given: ProducerKeywords) -> ProducerOptions:
    """Return the resulting options. Raises TypeError or InvalidOption for a wrong one."""
    options = _known(ProducerOptions, "a producer", given)
    if not topic:
        raise ClientError("a producer needs a topic: TopicProducer(address, topic='orders')")
    check_topic_name(topic)
    if options.acks not in ACKS:
        raise InvalidClientOption(f"acks={options.acks!r} is invalid; use 'all' or 1")
    if options.partitioner not in PARTITIONERS:
        raise InvalidClientOption(
            f"partitioner={options.partitioner!r} is invalid; use one of {', '.join(PARTITIONERS)}"
        )
    _at_least(1, options, "buffer_records", "call_records", "delivery_timeout_ms", "connect_timeout_ms")
    _at_least(1, options, "metadata_refresh_ms")
    _at_least(0, options, "linger_ms", "partitions", "replication_factor")
    return options


def consumer_options(group: str, topics: Sequence[str], given: ConsumerKeywords) -> ConsumerOptions:
    """Return the resulting options. Raises TypeError or InvalidOption for a wrong one."""
    options = _known(ConsumerOptions, "a consumer", given)
    if not group:
        raise ClientError(f"a consumer needs a group: {EXAMPLE}")
    if not topics:
        raise ClientError(f"a consumer needs topics: {EXAMPLE}")
    for topic in topics:
        check_topic_name(topic)
    if options.reset not in RESETS:
        raise InvalidClientOption(f"reset={options.reset!r} is invalid; use 'earliest' or 'latest'")
    _at_least(1, options, "commit_records", "commit_interval_ms", "poll_records", "poll_interval_ms")
    _at_least(1, options, "buffer_records", "max_handling_ms", "connect_timeout_ms")
    _at_least(0, options, "rebalance_timeout_ms")
    return options


def _known(kind: type[Chosen], who: str, given: Mapping[str, Any]) -> Chosen:
    """Return the options with the given ones changed. An unknown name raises TypeError, as Python itself does."""
    for name, value in given.items():
        if name not in kind._fields:
            near = get_close_matches(name, kind._fields, n=1)
            advice = f"did you mean {near[0]}?" if near else f"use one of {', '.join(kind._fields)}"
            raise TypeError(f"{who} has no option {name!r}; {advice}")
        wanted = type(kind._field_defaults[name])
        if wanted in KINDS and name != "acks" and not _is_a(wanted, value):
            raise TypeError(f"{name}={value!r} is not {KINDS[wanted]}")
    return kind(**given)


def _is_a(wanted: type, value: object) -> bool:
    return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))


def _at_least(least: int, options: ProducerOptions | ConsumerOptions, *names: str) -> None:
    for name in names:
        if getattr(options, name) < least:
            raise InvalidClientOption(f"{name}={getattr(options, name)} must be at least {least}")
