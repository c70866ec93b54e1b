"""Snapshots of a demo run, early and later."""

from dataclasses import replace

from tidemill.cli.demo.reminders import Lateness
from tidemill.cli.demo.screen import Snapshot

EARLY_ON = Snapshot(
    seconds=3.0,
    orders_written=600,
    orders_per_s=200.0,
    orders_in_topic=600,
    lag=None,
    reminders_scheduled=0,
    reminders_delivered=0,
    reminders_early=0,
    reminders_lateness=None,
    spark="starting",
)
LATER = replace(
    EARLY_ON,
    lag=100,
    reminders_scheduled=80,
    reminders_delivered=60,
    reminders_lateness=Lateness(1.25, 9.5, 11.0),
    spark="running",
    batches=2,
    rows=500,
    batch_ms=1_500,
    orders_aggregated=500,
    revenue_by_item={"tea": 1_000.0, "bread": 500.0},
)
