"""The stream reader: micro-batches with admission control, and progress that Kafka's tools can see.

Spark asks for the next end with the start of the next micro-batch, which is the end of the one that it has finished.
That start is what is committed to the group `kafka.group.id`; `commit` says the same a little later. The group only
shows how far the query is: where it goes on after a restart is in Spark's checkpoint.
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
from tidemill.pipelines.core.offsets import QueryProgress, worth_a_batch
from tidemill.pipelines.planning import Planner
from tidemill.pipelines.spark.source import Task, TaskReader

log = logging.getLogger("tidemill.spark")


class StreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic as it grows."""

    _target: QueryProgress | None = None
    _committed: QueryProgress | None = None
    _begun_s: float | None = None
    """When the last micro-batch was given its end."""

    @cached_property
    def _client(self) -> KafkaClient:
        return KafkaClient(self._options.client)

    @property
    def _planner(self) -> Planner:
        return Planner(self._client, self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return self._planner.beginning().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What Spark hands to `latestOffset`, unless the trigger wants everything."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the logs end: the query stops there."""
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
        """Whether the micro-batch is put off until there is more to read."""
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
        """Where the logs end, for the progress that Spark reports."""
        return self._planner.newest().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        return [
            Task(each) for each in self._planner.tasks(QueryProgress.from_json(start), QueryProgress.from_json(end))
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done."""
        self._show(QueryProgress.from_json(end))

    def stop(self) -> None:
        """Close the connections of the driver."""
        if "_client" in self.__dict__:
            self._client.close()

    def _show(self, done: QueryProgress) -> None:
        """Commit to the group; a query does not end because its progress could not be shown."""
        if self._options.group is None or done == self._committed:
            return
        try:
            offsets = {part: GroupOffset(offset) for part, offset in done.offsets.items()}
            self._client.commit_offsets(self._options.group, offsets)
            self._committed = done
        except TidemillError as error:
            log.warning("progress of group %s is not shown: %s", self._options.group, error)
