"""The parts of the demo that need no broker: orders by seed, percentiles, what is shown."""

import random
import socket
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from tidemill.cli.demo import pipeline, run
from tidemill.cli.demo.orders import ITEMS, QUANTITY_MAX, draw
from tidemill.cli.demo.pace import Pace
from tidemill.cli.demo.reminders import Lateness, lateness
from tidemill.cli.demo.screen import Snapshot, line, summary, table
from tidemill.cli.errors import CommandFailed
from tidemill.settings import Address

AT = datetime(2026, 11, 16, 18, 0, 0, 123_000, tzinfo=UTC)
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


def test_the_same_seed_gives_the_same_orders() -> None:
    def orders(seed: int) -> list[object]:
        choice = random.Random(seed)
        return [draw(choice, number, AT) for number in range(100)]

    assert orders(7) == orders(7)
    assert orders(7) != orders(8)


def test_an_order() -> None:
    order = draw(random.Random(1), 42, AT)
    assert order.id == 42
    assert order.at == "2026-11-16T18:00:00.123+00:00"
    assert order.item in ITEMS
    assert 1 <= order.quantity <= QUANTITY_MAX
    assert order.price > 0


def test_percentiles() -> None:
    assert lateness([]) is None
    assert lateness([3.0]) == Lateness(3.0, 3.0, 3.0)
    assert lateness([float(n) for n in range(100, -1, -1)]) == Lateness(50.0, 99.0, 100.0)


def test_the_pace_of_the_last_second_and_of_the_whole_run() -> None:
    pace = Pace(10.0)
    assert pace.lately(10.5, 100) == 0.0
    assert pace.lately(11.0, 200) == 200.0
    assert pace.lately(11.9, 900) == 200.0
    assert pace.lately(13.0, 300) == 50.0
    # The last orders were long ago when the pipeline is through with them.
    assert pace.overall(25.0, 3_000) == 200.0
    assert pace.overall(10.0, 0) == 0.0


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


def test_what_must_not_happen_fails() -> None:
    run._judge(LATER, drained=False)
    with pytest.raises(CommandFailed, match="3 reminders were delivered before they were due"):
        run._judge(replace(LATER, reminders_early=3), drained=False)
    with pytest.raises(CommandFailed, match="600 orders were written, but 500 aggregated"):
        run._judge(LATER, drained=True)


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address("127.0.0.1", other.getsockname()[1])
        monkeypatch.setitem(run.DEFAULTS, "kafka", taken)
        assert run.free_address("kafka") == "127.0.0.1:0"
    assert run.free_address("kafka") == str(taken)


def test_what_is_wrong_with_spark_is_one_line() -> None:
    assert pipeline._line(RuntimeError("first\nsecond")) == "first"
    assert pipeline._line(RuntimeError()) == "RuntimeError"
    missing = ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    assert pipeline._line(missing) == "pyspark is not installed; pip install 'tidemill[spark]'"
