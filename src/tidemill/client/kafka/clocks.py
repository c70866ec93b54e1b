"""The request by which a broker reads the clock of another: DescribeConfigs of the value `tidemill.clock`."""

import json
from typing import NamedTuple

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.model.errors import ProtocolViolation

DESCRIBE_CONFIGS = ClientApi(32, 4, 4)
BROKER = 4
CLOCK = "tidemill.clock"
TRUSTED = "trusted"


class ReportedClock(NamedTuple):
    """The wall clock of another broker at the time of its response, and whether that broker trusts it."""

    wall_ms: int
    is_trusted: bool


def clock_request(node_id: int) -> Request:
    """The request for the clock of a broker."""
    resource = {"resource_type": BROKER, "resource_name": str(node_id), "configuration_keys": (CLOCK,)}
    return plain(DESCRIBE_CONFIGS, {"resources": [resource], "include_synonyms": False, "include_documentation": False})


def reported_clock(answer: Answer) -> ReportedClock | None:
    """The clock in the response. None from a broker that does not have this value."""
    for result in answer.message().results:
        for config in result.configs:
            if config.name == CLOCK and config.value:
                return _read(config.value)
    return None


def _read(text: str) -> ReportedClock:
    try:
        values = json.loads(text)
        return ReportedClock(int(values["wall_ms"]), values["state"] == TRUSTED)
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolViolation(f"the value of {CLOCK} cannot be read: {error}") from None
