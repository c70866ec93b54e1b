"""Which traces a broker records: the samplers of OpenTelemetry, by their names in OTEL_TRACES_SAMPLER.

A broker continues traces and starts none: a trace begins at the client that has sent `traceparent`. So every sampler
that follows the parent does the same here.
"""

import math
from typing import NamedTuple

from tidemill.model.errors import InvalidConfig
from tidemill.tracing.core.trace_context import TraceContext

DEFAULT = "parentbased_always_on"
FOLLOWING = ("parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
RATIO = "traceidratio"
FIXED = {"always_on": 1.0, "always_off": 0.0}
NAMES = (*FIXED, RATIO, *FOLLOWING)
_RATIO_BITS = 64
"""OpenTelemetry compares the lower half of a trace id with the ratio."""


class Sampler(NamedTuple):
    """Records what the client records, or else a share of all traces."""

    follows_client: bool = True
    ratio: float = 1.0

    def samples(self, context: TraceContext) -> bool:
        """Whether the trace of this context is recorded; the same on every broker."""
        if self.follows_client:
            return context.is_sampled
        return context.trace_id % (1 << _RATIO_BITS) < round(self.ratio * (1 << _RATIO_BITS))


def sampler_of(name: str, argument: str) -> Sampler:
    """The sampler of OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG; InvalidConfig says what is wrong."""
    wanted = name.strip().lower() or DEFAULT
    if wanted in FOLLOWING:
        return Sampler()
    if wanted in FIXED:
        return Sampler(follows_client=False, ratio=FIXED[wanted])
    if wanted == RATIO:
        return Sampler(follows_client=False, ratio=_ratio(argument))
    raise InvalidConfig(f"OTEL_TRACES_SAMPLER: {name[:40]!r} is not one of {', '.join(NAMES)}")


def _ratio(argument: str) -> float:
    try:
        ratio = float(argument.strip() or "1")
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:  # not a number is refused too
        raise InvalidConfig(
            f"OTEL_TRACES_SAMPLER_ARG: {argument[:40]!r} is not a ratio from 0 to 1; write 0.1 for 10 %"
        )
    return ratio
