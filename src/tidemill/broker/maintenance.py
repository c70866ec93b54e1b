"""Tending: what the broker does for its partitions every few seconds.

Rotation by age, compaction and flushing are looked after in every round, retention in one round of
`log.retention.check.interval.ms`, or in every round while the disk is full. What is deleted because it is old asks
the clock first (`may_delete`); retention by size does not.
"""

import asyncio
from collections.abc import Callable

import structlog

from tidemill.broker.partitions import Partitions
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import TidemillError
from tidemill.streams.maintenance import MaintenanceTasks
from tidemill.supervision.supervisor import Supervisor

TENDED_AT_A_TIME = 32
"""Partitions that are looked after before clients get their turn: about a millisecond."""
FIRST_RETENTION_MS = 30_000
"""After a start, other clocks are compared before the first record is deleted because it is old."""

log = structlog.get_logger("tidemill.broker")


class BrokerMaintenance:
    """Looks after all partitions of a broker."""

    def __init__(
        self,
        partitions: Partitions,
        settings: BrokerSettings,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        may_delete: Callable[[], bool],
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self._partitions = partitions
        self._settings = settings
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self._may_delete = may_delete
        self._retention_ms = steady_ms() + min(FIRST_RETENTION_MS, settings.log_retention_check_interval_ms)

    async def run(self) -> None:
        """One round, letting clients in between."""
        retain = self._retention_due()
        for number, partition in enumerate(self._partitions):
            if number % TENDED_AT_A_TIME == 0:
                await asyncio.sleep(0)
            name = f"{partition.topic}-{partition.index}"
            # No await between the two: a time that was read before the clock was corrected must not be used after it.
            chores, now_ms = MaintenanceTasks(retain=retain, by_time=self._may_delete()), self._clock_ms()
            try:
                await partition.tend(now_ms, self._settings.producer_id_expiration_ms, chores)
            except (TidemillError, OSError) as error:
                log.warning("tending failed", partition=name, error=str(error))
            except Exception as error:  # noqa: BLE001 - one partition must not keep the others from retention
                self._supervisor.note_failure("partition maintenance", error, about=name)

    def _retention_due(self) -> bool:
        now_ms = self._steady_ms()
        if now_ms >= self._retention_ms:
            self._retention_ms = now_ms + self._settings.log_retention_check_interval_ms
            return True
        return self._partitions.store.full or self._partitions.lacks_room
