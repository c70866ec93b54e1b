"""OpenTelemetry's variables."""

import pytest

from tidemill.app.otlp.environment import read_environment
from tidemill.model.errors import InvalidConfig


def test_defaults_are_those_of_the_specification() -> None:
    found = read_environment({})
    assert not found.is_disabled
    assert found.sampler.follows_client
    assert (found.queue_spans_max, found.batch_spans_max) == (2048, 512)
    assert (found.span_delay_s, found.metric_interval_s) == (5.0, 60.0)


def test_empty_is_the_default() -> None:
    names = ("OTEL_TRACES_SAMPLER", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_SDK_DISABLED")
    assert read_environment(dict.fromkeys(names, " ")) == read_environment({})


def test_values() -> None:
    found = read_environment(
        {
            "OTEL_SDK_DISABLED": "TRUE",
            "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.1",
            "OTEL_BSP_SCHEDULE_DELAY": "250",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
    )
    assert (found.is_disabled, found.sampler.ratio, found.span_delay_s) == (True, 0.1, 0.25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5s"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "9" * 5_000),
        ("OTEL_METRIC_EXPORT_INTERVAL", "\u0661"),
    ],
)
def test_wrong_values_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        read_environment({name: value})
