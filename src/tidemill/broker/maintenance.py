"""Periodic maintenance of the partitions of a broker.

Every round handles rotation by age, compaction and flushing. Retention runs once per `log.retention.check.interval.ms`,
or in every round while the disk is full. Deletion by age is allowed only when the clock is trusted (`may_delete`);
retention by size does not depend on the clock.
"""

import asyncio
from collections.abc import Callable

import structlog

from tidemill.broker.partitions import Partitions
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import TidemillError
from tidemill.streams.maintenance import MaintenanceTasks
from tidemill.supervision.supervisor import Supervisor

PARTITIONS_PER_TURN = 32
"""Partitions that are maintained before clients get their turn: about a millisecond."""
FIRST_RETENTION_MS = 30_000
"""After a start, the clock is compared with others before the first record is deleted by age."""

log = structlog.get_logger("tidemill.broker")


class BrokerMaintenance:
    """Maintains all partitions of a broker."""

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
        """Run one round, and let clients run in between."""
        retain = self._retention_due()
        for number, partition in enumerate(self._partitions):
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            name = f"{partition.topic}-{partition.index}"
            # No await between the two: a time that was read before the clock was corrected must not be used after it.
            tasks, now_ms = MaintenanceTasks(retain=retain, by_time=self._may_delete()), self._clock_ms()
            try:
                await partition.maintain(now_ms, self._settings.producer_id_expiration_ms, tasks)
            except (TidemillError, OSError) as error:
                log.warning("partition_maintenance_failed", partition=name, error=str(error))
            except Exception as error:  # noqa: BLE001 - one partition must not keep the others from retention
                self._supervisor.note_failure("partition maintenance", error, about=name)

    def _retention_due(self) -> bool:
        now_ms = self._steady_ms()
        if now_ms >= self._retention_ms:
            self._retention_ms = now_ms + self._settings.log_retention_check_interval_ms
            return True
        return self._partitions.store.full or self._partitions.lacks_room
