"""Counts the queries that a broker sends to a database: how many, how long, which errors.

Adapters name a query by three short lists, so the number of its metrics is bounded whatever clients do.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from tidemill.model.metrics import Histogram


class QueryOperation(StrEnum):
    """What a query does."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"


class QueryType(StrEnum):
    """How a query finds its rows: by a range, or each one by its key."""

    RANGE = "range"
    LOOKUP = "lookup"


class QueryFilter(StrEnum):
    """Which messages of a timeline a query is about. Queries about streams and settings are about all rows."""

    ALL = "all"
    AVAILABLE = "available"
    WAITING = "waiting"
    PROCESSING = "processing"


class QueryKind(NamedTuple):
    """A kind of query."""

    operation: QueryOperation
    type: QueryType
    filter: QueryFilter = QueryFilter.ALL


class StorageQueries:
    """The queries to one store. The clock is given, because the model reads none.

    `is_answer` says which errors are answers of a store that works, such as the rejection of a wrong argument.
    `traffic` returns the bytes that a store on servers has sent and received; None for a store in this process.
    """

    def __init__(
        self,
        store: str,
        clock_s: Callable[[], float],
        *,
        is_answer: Callable[[Exception], bool] = lambda _: False,
        traffic: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.store = store
        self.traffic = traffic
        self.latency = Histogram()
        """How long all queries took together."""
        self.durations: dict[QueryKind, Histogram] = {}
        """How long the broker waited, also for a connection, and also for queries that failed."""
        self.errors: Counter[tuple[QueryKind, str]] = Counter()
        """Failed queries, by kind and class of the error."""
        self._clock_s = clock_s
        self._is_answer = is_answer

    @contextmanager
    def measured(self, kind: QueryKind) -> Iterator[None]:
        """Count a query that lasts as long as the block."""
        began_s = self._clock_s()
        try:
            yield
        except Exception as error:
            if not self._is_answer(error):
                self.errors[kind, type(error).__name__] += 1
            raise
        finally:
            duration = self.durations.get(kind)
            if duration is None:
                duration = self.durations[kind] = Histogram()
            took_s = self._clock_s() - began_s
            duration.add(took_s)
            self.latency.add(took_s)
