"""What a broker says of its health."""

import json
import urllib.error
import urllib.request

from tidemill.testing import Broker


def timelines_health(broker: Broker) -> dict[str, object]:
    """What `/health` says of the timelines; a degraded broker answers 503."""
    try:
        with urllib.request.urlopen(f"{broker.http}/health") as answer:
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        told = json.load(error)
    timelines: dict[str, object] = told["timelines"]
    return timelines
