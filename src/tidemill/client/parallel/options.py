"""The options of a parallel consumer, validated before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.client.parallel.metadata import METADATA_BYTES_MAX
from tidemill.client.parallel.work import Ordering
from tidemill.model.errors import TidemillError

OUR_SETTINGS = ("enable.auto.commit", "enable.auto.offset.store", "on_commit")
WORKERS_MAX = 10_000
NUMBERS = (
    "workers",
    "commit_interval_ms",
    "commit_every",
    "error_threshold",
    "max_in_flight",
    "revoke_timeout_ms",
    "metadata_bytes_max",
)


class InvalidOption(TidemillError, ValueError):
    """An option of the parallel consumer is invalid."""


class Halted(TidemillError):
    """The parallel consumer stopped because of an error. Records that were not complete will be read again."""


class TooManyErrors(Halted):
    """Too many handlers failed in a row, so the cause is probably not a single record."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed record is tried again, with which delay. `attempts` includes the first try.

    The n-th wait is `backoff_ms * 2**(n - 1)`, at most `max_backoff_ms`, changed at random by up to `jitter` of itself.
    """

    attempts: int = 5
    backoff_ms: int = 100
    max_backoff_ms: int = 10_000
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _need(self.attempts >= 1, f"retry.attempts={self.attempts} is below 1")
        _need(
            0 <= self.backoff_ms <= self.max_backoff_ms,
            f"retry.backoff_ms={self.backoff_ms} is not between 0 and max_backoff_ms={self.max_backoff_ms}",
        )
        _need(0 <= self.jitter <= 1, f"retry.jitter={self.jitter} is not between 0 and 1")

    def wait_ms(self, attempt: int, chance: float) -> int:
        """The wait after the `attempt`-th failure. `chance` is a random number from 0 to 1."""
        wait = min(self.backoff_ms << min(attempt - 1, 30), self.max_backoff_ms)
        return round(wait * (1 + self.jitter * (2 * chance - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelOptions:
    """The validated arguments of a ParallelConsumer."""

    config: Mapping[str, Any]
    topics: Sequence[str]
    ordering: Ordering = Ordering.KEY
    workers: int = 100
    executor: str = "thread"
    tracking: str = "partition"
    retry: Retry = field(default_factory=Retry)
    dead_letter: str | None = None
    on_exhausted: str = "halt"
    commit_interval_ms: int = 5_000
    commit_every: int = 1_000
    error_threshold: int = 100
    max_in_flight: int = 10_000
    revoke_timeout_ms: int = 10_000
    metadata_bytes_max: int = METADATA_BYTES_MAX
    max_records: int | None = None

    def __post_init__(self) -> None:
        _need(bool(self.config.get("bootstrap.servers")), "the config has no bootstrap.servers; set it to host:port")
        _need(
            bool(self.config.get("group.id")),
            "the config has no group.id, which commits need; set it to the name of the group",
        )
        for name in OUR_SETTINGS:
            _need(name not in self.config, f"{name} is set by the parallel consumer; remove it from the config")
        _need(not isinstance(self.topics, str) and bool(self.topics), "topics is not a list with at least one name")
        _need(
            self.dead_letter not in self.topics,
            f"dead_letter={self.dead_letter!r} is also in topics; choose another topic",
        )
        _need(isinstance(self.retry, Retry), f"retry={self.retry!r} is not a Retry(attempts=...)")
        for name in NUMBERS:
            _need(isinstance(getattr(self, name), int), f"{name}={getattr(self, name)!r} is not a whole number")
        _need(1 <= self.workers <= WORKERS_MAX, f"workers={self.workers} is not between 1 and {WORKERS_MAX:,}")
        _need(self.executor in {"thread", "process"}, f"executor={self.executor!r} is neither thread nor process")
        _need(
            self.tracking in {"partition", "sequence"}, f"tracking={self.tracking!r} is neither partition nor sequence"
        )
        _need(self.on_exhausted in {"halt", "skip"}, f"on_exhausted={self.on_exhausted!r} is neither halt nor skip")
        for name in ("commit_interval_ms", "commit_every", "error_threshold", "max_in_flight"):
            _need(getattr(self, name) >= 1, f"{name}={getattr(self, name)} is below 1")
        _need(self.revoke_timeout_ms >= 0, f"revoke_timeout_ms={self.revoke_timeout_ms} is below 0")
        _need(self.metadata_bytes_max >= 0, f"metadata_bytes_max={self.metadata_bytes_max} is below 0")
        _need(self.max_records is None or self.max_records >= 1, f"max_records={self.max_records} is below 1")


def ordering_of(name: str) -> Ordering:
    """The ordering with this name."""
    try:
        return Ordering(name)
    except ValueError:
        raise InvalidOption(f"ordering={name!r} is not one of key, partition and unordered") from None


def _need(fine: bool, sentence: str) -> None:
    if not fine:
        raise InvalidOption(sentence)
