"""The demo's output: a line, a table, a summary."""

from dataclasses import replace

from rich.console import Console
from tests.unit.cli.demo.snapshots import EARLY_ON, LATER

from tidemill.cli.demo.screen import line, summary, table


def test_a_line() -> None:
    assert line(EARLY_ON) == "  3.0 s  orders 600 (200/s)  reminders 0 none early  spark starting"
    assert line(LATER) == (
        "  3.0 s  orders 600 (200/s)  reminders 60 none early, late p50 1.2 ms p99 9.5 ms  "
        "spark running, 2 batches, 500 rows, last 1.5 s, lag 100"
    )


def test_the_table() -> None:
    console = Console(width=100)
    with console.capture() as shown:
        console.print(table(LATER))
    text = shown.get()
    assert "600 written, 200/s" in text
    assert "1,000.00" in text
    assert text.index("tea") < text.index("bread")


def test_the_summary() -> None:
    assert "500 of 600 orders aggregated in 2 micro-batches (up to the last committed batch)" in summary(
        LATER, drained=False
    )
    assert "60 delivered, 20 not due yet, none early" in summary(LATER, drained=False)
    assert "(equal)" in summary(replace(LATER, orders_aggregated=600), drained=True)
    gone = replace(EARLY_ON, spark="unavailable", spark_reason="there is no java")
    assert "revenue    spark unavailable: there is no java" in summary(gone, drained=False)
