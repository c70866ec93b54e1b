"""The load that a broker publishes, as metrics of its own load: what other brokers and overseers decide by."""

from collections.abc import Callable, Iterator

from tidemill.broker.broker_loads import BrokerLoads
from tidemill.cluster.core.broker_load import LoadLevel, pressure_of
from tidemill.model.metrics import CounterReading, Gauge, MetricReading


def load_readings(loads: BrokerLoads) -> Callable[[], Iterator[MetricReading]]:
    """The level, the largest measurement as a share of its limit, and the connections to other brokers."""

    def read() -> Iterator[MetricReading]:
        own = loads.own
        for level in LoadLevel:
            labels = (("level", level.value),)
            yield Gauge("tidemill_broker_load_level", "1 for the level of load.", float(own.level is level), labels)
        pressure = pressure_of(own.averages)
        yield Gauge("tidemill_broker_load_ratio", "The largest measurement of load, as a share of its limit.", pressure)
        yield Gauge("tidemill_peers_missing", "Registered brokers that do not answer this one.", len(own.missing))
        for node_id, ms in sorted(own.round_trips_ms.items()):
            labels = (("broker", str(node_id)),)
            yield Gauge(
                "tidemill_peer_round_trip_seconds", "The smoothed round trip to another broker.", ms / 1_000, labels
            )
        yield CounterReading("tidemill_broker_load_writes", "Loads that this broker has published.", loads.writes)

    return read
