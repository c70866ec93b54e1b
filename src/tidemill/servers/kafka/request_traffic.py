"""The numbers of each API, found by its name alone: the lookup is a part of every request."""

from tidemill.broker.metrics import ApiTraffic, BrokerMetrics
from tidemill.servers.kafka.error_counts import SERVER


class RequestTraffic(dict[str, ApiTraffic]):
    """The numbers of `BrokerMetrics.api`, each looked up there once."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        super().__init__()
        self._metrics = metrics

    def __missing__(self, api: str) -> ApiTraffic:
        found = self[api] = self._metrics.api(SERVER, api)
        return found
