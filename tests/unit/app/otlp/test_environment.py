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


HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


@pytest.mark.parametrize(
    "text",
    ["", " , ", "authorization=Bearer%20s3cret", "authorization = Bearer s3cret, x-scope=a=b", "x=", "a%2Db=c"],
)
def test_headers_that_can_be_sent_are_accepted(text: str) -> None:
    assert read_environment({HEADERS: text}) == read_environment({})


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer s3cret",
        "good=1,s3cret",
        "authorization=s3cret%0d%0ahost: evil",
        "authorization=s3cr\u00e9t",
        "authorization=s3cr%C3%A9t",
        'authorization="s3cret"',
        "authorization=s3cret;x",
        "=s3cret",
    ],
)
@pytest.mark.parametrize("name", [HEADERS, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"])
def test_headers_that_cannot_be_sent_are_refused_without_their_values(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name) as raised:
        read_environment({name: text})
    assert "s3cr" not in str(raised.value)
