"""Samplers by the names of OpenTelemetry."""

import pytest

from tidemill.model.errors import InvalidConfig
from tidemill.tracing.core.sampling import sampler_of
from tidemill.tracing.core.trace_context import TraceContext

SAMPLED, UNSAMPLED = TraceContext(1, 1, is_sampled=True), TraceContext(1, 1, is_sampled=False)


@pytest.mark.parametrize(
    ("name", "argument", "sampled", "unsampled"),
    [
        ("", "", True, False),
        ("parentbased_always_on", "", True, False),
        ("PARENTBASED_TRACEIDRATIO", "0", True, False),
        ("always_on", "", True, True),
        ("always_off", "", False, False),
        ("traceidratio", "1", True, True),
        ("traceidratio", "0", False, False),
        ("traceidratio", "", True, True),
    ],
)
def test_samplers(name: str, argument: str, sampled: bool, unsampled: bool) -> None:
    sampler = sampler_of(name, argument)
    assert (sampler.samples(SAMPLED), sampler.samples(UNSAMPLED)) == (sampled, unsampled)


def test_a_ratio_samples_by_the_lower_half_of_the_trace_id() -> None:
    sampler = sampler_of("traceidratio", "0.25")
    low = [sampler.samples(TraceContext(number << 62 | 1 << 100, 1, is_sampled=False)) for number in range(4)]
    assert low == [True, False, False, False]


@pytest.mark.parametrize(
    ("name", "argument"), [("jaeger_remote", ""), ("traceidratio", "2"), ("traceidratio", "nan"), ("traceidratio", "x")]
)
def test_wrong_samplers_are_refused(name: str, argument: str) -> None:
    with pytest.raises(InvalidConfig, match="OTEL_TRACES_SAMPLER"):
        sampler_of(name, argument)
