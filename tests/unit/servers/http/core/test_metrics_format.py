"""What a scraper accepts decides the format."""

import pytest

from tidemill.servers.http.core.metrics_format import MetricsFormat, metrics_format

OF_PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
"""As Prometheus sends it."""


@pytest.mark.parametrize(
    "accept",
    [
        OF_PROMETHEUS,
        "application/openmetrics-text",
        "Application/OpenMetrics-Text; version=1.0.0; charset=utf-8 , text/plain",
        "text/plain;q=0.5, application/openmetrics-text",
    ],
)
def test_openmetrics_is_sent_where_it_is_preferred(accept: str) -> None:
    assert metrics_format(accept) is MetricsFormat.OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "text/plain;version=0.0.4, application/openmetrics-text;q=0.9",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=much",
        ";;=,,;q=",
    ],
)
def test_all_others_get_the_text_of_prometheus(accept: str) -> None:
    assert metrics_format(accept) is MetricsFormat.PROMETHEUS
