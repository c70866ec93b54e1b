"""The durations of the requests of each API, found by its name alone: the lookup is a part of every request."""

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import Histogram
from tidemill.servers.kafka.error_counts import SERVER


class RequestDurations(dict[str, Histogram]):
    """The histograms of `BrokerMetrics.api`, each looked up there once."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        super().__init__()
        self._metrics = metrics

    def __missing__(self, api: str) -> Histogram:
        found = self[api] = self._metrics.api(SERVER, api).duration
        return found
