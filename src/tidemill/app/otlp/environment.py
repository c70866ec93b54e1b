"""OpenTelemetry's own environment variables, as far as they do not concern its exporter, which reads the others itself.

A value that is not understood is refused: a broker that exports something else than the operator wanted is found late.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from tidemill.model.errors import InvalidConfig
from tidemill.tracing.core.sampling import Sampler, sampler_of

PROTOCOL = "http/protobuf"
PROTOCOL_VARIABLES = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
)
HEADER_VARIABLES = (
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
)
_HEADER = re.compile(r"[ \t]*[\w!#$%&'*+.^`|~-]+[ \t]*=(?P<value>[ !#-+\--:<-\[\]-~]*)", re.ASCII)
"""A header as the exporter reads it. It would log one that it cannot read, and headers have passwords."""
NUMBER_MAX = 2**31 - 1
MS_PER_S = 1_000


class OtelEnvironment(NamedTuple):
    """What the variables say."""

    is_disabled: bool
    sampler: Sampler
    queue_spans_max: int
    batch_spans_max: int
    span_delay_s: float
    metric_interval_s: float


def read_environment(environ: Mapping[str, str]) -> OtelEnvironment:
    """Read the variables; InvalidConfig says what is wrong."""
    for name in PROTOCOL_VARIABLES:
        if (wanted := environ.get(name, "").strip()) not in {"", PROTOCOL}:
            raise InvalidConfig(f"{name}: {wanted[:40]!r} is not supported; leave it out, or set it to {PROTOCOL}")
    for name in HEADER_VARIABLES:
        _check_headers(name, environ.get(name, ""))
    return OtelEnvironment(
        environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true",
        sampler_of(environ.get("OTEL_TRACES_SAMPLER", ""), environ.get("OTEL_TRACES_SAMPLER_ARG", "")),
        _number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", 2_048),
        _number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        _number(environ, "OTEL_BSP_SCHEDULE_DELAY", 5_000) / MS_PER_S,
        _number(environ, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / MS_PER_S,
    )


def _check_headers(name: str, text: str) -> None:
    """Refuse headers that cannot be sent. The error shows nothing of their values."""
    for position, header in enumerate(text.split(","), 1):
        if not header.strip():
            continue
        found = _HEADER.fullmatch(header.strip())
        value = "" if found is None else unquote(found["value"]).strip()
        if found is None or not (value.isascii() and (value.isprintable() or not value)):
            raise InvalidConfig(
                f"{name}: header {position} is not name=value with a URL-encoded value; "
                "write for example authorization=Bearer%20TOKEN"
            )


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= NUMBER_MAX:
        raise InvalidConfig(f"{name}: {text[:40]!r} is not a number from 1 to {NUMBER_MAX}")
    return int(text)
