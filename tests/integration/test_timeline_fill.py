"""The data directories that benchmarks fill: a broker starts on them and has their messages."""

import time
from pathlib import Path

import pytest
from benchmarks.timeline_fill import filled, kept

from tidemill.client.timelines import AsyncTimeline
from tidemill.testing import Broker

PENDING = 25
HOUR_MS = 3_600_000


async def test_a_broker_starts_on_a_filled_directory(tmp_path: Path) -> None:
    start_ms = time.time_ns() // 1_000_000 + HOUR_MS
    await filled(str(tmp_path), "late", PENDING, start_ms, start_ms + HOUR_MS, ordered=True)
    assert await pending_in(tmp_path, "late") == PENDING


async def test_a_kept_directory_is_filled_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_ms = time.time_ns() // 1_000_000 + HOUR_MS
    first = await kept(tmp_path, "near", PENDING, start_ms, start_ms + HOUR_MS)
    assert await kept(tmp_path, "near", PENDING, start_ms, start_ms + HOUR_MS) == first
    assert capsys.readouterr().out.splitlines()[-1] == f"pending: {PENDING} messages, from {first}"
    assert await pending_in(first, "near") == PENDING


async def pending_in(folder: Path, name: str) -> int:
    with Broker(data_dir=folder) as broker:
        async with AsyncTimeline(broker.grpc, name) as timeline:
            return await timeline.count()
