"""What recurring messages cost in processor time: one next occurrence, and completions compared with other messages.

`python -m benchmarks.recurrence` computes next occurrences of some rules, and schedules, leases and completes messages in
an SQLite store with batches of the same size: without a rule, without a rule next to a recurring one, and with one.
With croniter installed (`uv pip install croniter`), the same cron expressions are also computed by it.
"""

import argparse
import asyncio
import importlib
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from benchmarks.machine import head
from tidemill.timelines.core.lease import Claim, CommandOutcome, Complete
from tidemill.timelines.core.message import NewMessage
from tidemill.timelines.core.recurrence import Recurrence, next_occurrence
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.sqlite import open_store

START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
STEP_MS = 3_600_000
TIMES = 1_000
BATCH = 500
ZONE = "Europe/Berlin"
CRONS = ("0 9 * * 1-5", "*/5 * * * *", "0 0 29 2 *")
RULE = Recurrence(CRONS[0], ZONE).to_text()


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="batches of each kind of message")
    rounds = parser.parse_args().rounds
    head("recurrence")
    for rule in (Recurrence(every_ms=300_000, start_ms=START_MS), *(Recurrence(cron, ZONE) for cron in CRONS)):
        spent_us = _each_us(lambda at_ms, rule=rule: next_occurrence(rule, at_ms, at_ms))  # type: ignore[misc] # bound now
        print(f"{rule.cron or 'every 5m':<12} {spent_us:7.1f} us{_peer(rule.cron, spent_us)}")
    asyncio.run(_completions(rounds))


def _each_us(compute: Callable[[int], object]) -> float:
    began = time.process_time()
    for number in range(TIMES):
        compute(START_MS + number * STEP_MS)
    return (time.process_time() - began) / TIMES * 1e6


def _peer(cron: str, spent_us: float) -> str:
    """The time that croniter takes for the same, if it is installed."""
    try:
        croniter = importlib.import_module("croniter").croniter
    except ImportError:
        return ""
    if not cron:
        return ""

    def compute(at_ms: int) -> object:
        return croniter(cron, datetime.fromtimestamp(at_ms / 1_000, ZoneInfo(ZONE))).get_next(datetime)

    peer_us = _each_us(compute)
    return f"  croniter {peer_us:7.1f} us, ratio {peer_us / spent_us:.1f}"


async def _completions(rounds: int) -> None:
    kinds = {"without a rule": "", "next to a recurring one": "", "with a rule": RULE}
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(Path(folder) / "timelines.db")
        await store.govern(Create("line"))
        await store.govern(MakeReady("line"))
        base_us = 0.0
        for kind, rule in kinds.items():
            if kind != "without a rule":
                await store.schedule("line", [NewMessage(f"other {kind}", START_MS * 2, b"", 1, recurrence=RULE)])
            spent_us = min([await _round(store, f"{kind} {number}", rule) for number in range(rounds)])
            base_us = base_us or spent_us
            print(f"complete {kind:<24} {spent_us:7.1f} us a message, ratio {spent_us / base_us:.2f}")
        await store.close()


async def _round(store: TimelineStore, name: str, rule: str) -> float:
    """Schedule, lease and complete a batch; the time of the completion for each message."""
    ids = [f"{name} {number}" for number in range(BATCH)]
    kept = await store.schedule("line", [NewMessage(one, START_MS, bytes(100), 1, recurrence=rule) for one in ids])
    claims = [Claim(one.seq, 1, "w", START_MS + 60_000, START_MS) for one in kept]
    leases = [one for one in await store.acquire("line", claims, now_ms=START_MS) if one is not None]
    began = time.process_time()
    outcomes = await store.settle("line", [Complete(one.seq, one.token) for one in leases], now_ms=START_MS)
    spent_s = time.process_time() - began
    assert set(outcomes) == {CommandOutcome.RECURRED if rule else CommandOutcome.DONE}
    return spent_s / BATCH * 1e6


if __name__ == "__main__":
    main()
