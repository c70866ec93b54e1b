"""The load of a broker as the JSON API and the commands show it."""

from tidemill.cluster.core.broker_load import LoadReport
from tidemill.wire.http.cluster import LoadRow, PeerRoundTrip


def load_row(report: LoadReport | None) -> LoadRow | None:
    """A load; None if it is not known."""
    if report is None:
        return None
    averages = report.averages
    return LoadRow(
        level=report.level.value,
        requests_per_second=_short(averages.requests_per_s),
        queue=_short(averages.queue),
        loop_delay_ms=_short(averages.loop_delay_ms),
        cpu_cores=_short(averages.cpu_cores),
        flush_ms=_short(averages.flush_ms),
        disk_used_share=_short(averages.disk_used),
        clients_round_trip_ms=_short(averages.clients_ms),
        peers=[
            PeerRoundTrip(
                broker=node,
                round_trip_ms=_short(report.round_trips_ms[node]) if node in report.round_trips_ms else None,
                missing=node in report.missing,
            )
            for node in sorted(report.round_trips_ms.keys() | report.missing)
        ],
    )


def _short(value: float) -> float:
    return float(f"{value:.3g}")
