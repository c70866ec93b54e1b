"""When certificates expire, for /metrics and for the log."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.waiting import eventually_async

from tidemill.app.certificate_watch import LOOKS_PER_WARNING, CertificateWatch
from tidemill.app.certificates import create_certificate
from tidemill.broker.health import CertificateNote
from tidemill.model.metrics import Gauge
from tidemill.settings import load

NOW = datetime(2026, 11, 18, tzinfo=UTC)


class KeptNotes:
    """What a broker keeps."""

    def __init__(self) -> None:
        self.certificates: tuple[CertificateNote, ...] = ()
        self.certificate_expiries: Mapping[str, datetime] = {}


def watch_of(
    path: Path, days_left: int, notes: KeptNotes, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> CertificateWatch:
    made = create_certificate(path, "broker", ("localhost",), days=200, now=NOW - timedelta(days=200 - days_left))
    broker = {"listeners": "SASL_SSL://127.0.0.1:9092", "ssl.keystore.location": str(made.path)}
    settings = load({"grpc": "none", "http": "none"}, broker=broker)
    return CertificateWatch(settings, lambda: int(NOW.timestamp() * 1000), notes, sleep)


async def test_the_expiry_of_each_server_is_reported(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, 100, KeptNotes())
    assert list(watch.readings()) == []
    running = asyncio.create_task(watch.run())
    await eventually_async(lambda: list(watch.readings()))
    running.cancel()
    (found,) = watch.readings()
    assert isinstance(found, Gauge)
    assert (found.value, found.labels) == ((NOW + timedelta(days=100)).timestamp(), (("server", "SASL_SSL"),))


async def test_a_warning_is_logged_once_a_day(tmp_path: Path) -> None:
    notes, looks = KeptNotes(), 0

    async def until_the_next_look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks > LOOKS_PER_WARNING:
            raise EOFError

    watch = watch_of(tmp_path, 3, notes, until_the_next_look)
    with capture_logs() as logged, pytest.raises(EOFError):
        await watch.run()
    assert [each["event"] for each in logged] == ["certificate_expires"] * 2
    assert "in 3 days" in notes.certificates[0].reason
