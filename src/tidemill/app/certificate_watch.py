"""Looks at the certificates of the servers once an hour: for /metrics, and once a day for a warning in the log.

Clients refuse a certificate that has expired, and the broker itself would not notice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Protocol

from tidemill.broker.health import CertificateNote
from tidemill.model.metrics import Gauge, MetricReading
from tidemill.settings import Settings

LOOK_S = 3_600.0
LOOKS_PER_WARNING = 24
INSPECTION = "tidemill.app.security_inspection"


class CertificateKeeper(Protocol):
    """Where the certificates that need attention are kept, and when each expires."""

    certificates: tuple[CertificateNote, ...]
    certificate_expiries: Mapping[str, datetime]


class CertificateWatch:
    """When the certificate of each server expires."""

    def __init__(
        self,
        settings: Settings,
        now_ms: Callable[[], int],
        broker: CertificateKeeper,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker = broker
        self._sleep = sleep
        self._settings = settings
        self._now_ms = now_ms

    async def run(self) -> None:
        """Look again and again until cancelled. A thread reads the files, with a library that is loaded then."""
        inspection = await asyncio.to_thread(import_module, INSPECTION)
        look = 0
        while True:
            self._broker.certificate_expiries = await asyncio.to_thread(inspection.certificate_expiries, self._settings)
            if look % LOOKS_PER_WARNING == 0:
                now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
                self._broker.certificates = await asyncio.to_thread(
                    inspection.warn_about_certificates, self._settings, now
                )
            look += 1
            await self._sleep(LOOK_S)

    def readings(self) -> Iterator[MetricReading]:
        """What was found at the last look."""
        for server, expires in self._broker.certificate_expiries.items():
            yield Gauge(
                "tidemill_certificate_expiry_timestamp_seconds",
                "When the certificate of a server expires, in seconds since 1970.",
                expires.timestamp(),
                (("server", server),),
            )
