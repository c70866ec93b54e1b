"""Reads the health report of a broker."""

import json
import urllib.error
import urllib.request
from typing import Any

from tidemill.testing import Broker


def health(broker: Broker) -> dict[str, Any]:
    """The content of `/health`. A degraded broker answers 503."""
    return health_at(broker.http)


def health_at(http: str) -> dict[str, Any]:
    """The same of the broker at this HTTP address."""
    try:
        with urllib.request.urlopen(f"{http}/health") as answer:
            reported: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        reported = json.load(error)
    return reported


def timelines_health(broker: Broker) -> dict[str, object]:
    """The timelines part of `/health`."""
    timelines: dict[str, object] = health(broker)["timelines"]
    return timelines
