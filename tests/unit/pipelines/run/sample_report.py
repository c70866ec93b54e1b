"""A report on two topics and two groups."""

from typing import Any

from tidemill.pipelines.run.core.report import GroupLag, TrafficReport


def point(topic: str, at: int, records: int, partition: int = 0) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "at": at, "records": records, "bytes": records * 100}


TRAFFIC = [point("orders", 0, 50), point("orders", 0, 50, 1), point("orders", 20_000, 20), point("clicks", 10_000, 300)]
LAGS = (
    GroupLag("a", "orders", 0, 10, 40, 3.5),
    GroupLag("a", "orders", 1, 5, 7, 9.0),
    GroupLag("b", "clicks", 0, 9, 9, 0.0),
)
REPORT = TrafficReport(0, 30_000, 10, TRAFFIC, LAGS)
