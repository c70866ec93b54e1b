"""The stream reader: micro-batches with admission control, and progress that Kafka's tools can see.

Spark asks for the next end together with the start of the next micro-batch, which is the end of the finished one. The
reader commits that start to the group `kafka.group.id`. `commit` reports the same a little later. The group only shows
progress. After a restart the query continues from Spark's checkpoint, not from the group.
"""

import logging
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidemill.client.kafka import GroupOffset, KafkaClient
from tidemill.model.errors import TidemillError
from tidemill.pipelines.source.core.offsets import QueryProgress, worth_a_batch
from tidemill.pipelines.source.planning import Planner
from tidemill.pipelines.spark.source import Task, TaskReader

log = logging.getLogger("tidemill.spark")


class StreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics continuously."""

    _target: QueryProgress | None = None
    _committed: QueryProgress | None = None
    _begun_s: float | None = None
    """When the last micro-batch started."""

    @cached_property
    def _client(self) -> KafkaClient:
        return KafkaClient(self._options.client)

    @property
    def _planner(self) -> Planner:
        return Planner(self._client, self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The position of a query without a checkpoint."""
        return self._planner.beginning().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit that Spark passes to `latestOffset`, unless the trigger requests everything."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the ends of the logs. The query stops there."""
        self._target = self._planner.newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next micro-batch."""
        done = QueryProgress.from_json(start)
        self._show(done)
        newest = self._target or self._planner.newest()
        unlimited = isinstance(limit, ReadAllAvailable)
        if not unlimited and self._target is None and self._waits(done, newest):
            return start
        return self._planner.advance(done, newest, unlimited=unlimited).to_json()

    def _waits(self, done: QueryProgress, newest: QueryProgress) -> bool:
        """Whether to delay the micro-batch until there are more records."""
        if self._options.min_offsets is None:
            return False
        now_s = time.monotonic()
        waited_ms = None if self._begun_s is None else int((now_s - self._begun_s) * 1000)
        backlog = self._planner.backlog(done, newest)
        if not worth_a_batch(backlog, self._options.min_offsets, waited_ms, self._options.max_delay_ms):
            return True
        self._begun_s = now_s
        return False

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The ends of the logs, for Spark's progress reports."""
        return self._planner.newest().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        return [
            Task(each) for each in self._planner.tasks(QueryProgress.from_json(start), QueryProgress.from_json(end))
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a finished micro-batch to the group."""
        self._show(QueryProgress.from_json(end))

    def stop(self) -> None:
        """Close the connections of the driver."""
        if "_client" in self.__dict__:
            self._client.close()

    def _show(self, done: QueryProgress) -> None:
        """Commit to the group. A failure is only logged, because the query does not depend on it."""
        if self._options.group is None or done == self._committed:
            return
        try:
            offsets = {part: GroupOffset(offset) for part, offset in done.offsets.items()}
            self._client.commit_offsets(self._options.group, offsets)
            self._committed = done
        except TidemillError as error:
            log.warning("offset_commit_failed group=%s: %s", self._options.group, error)
