"""The loads of all brokers: measures this one, publishes it under the session, and reads those of the others.

A broker without etcd publishes nothing. Its own load is known all the same.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from tidemill.broker.load_meter import LoadMeter
from tidemill.broker.peer_watch import PeerWatch
from tidemill.cluster.core.broker_load import (
    PUBLISH_S,
    STALE_S,
    LoadAverage,
    LoadReport,
    encode_load,
    is_worth_writing,
    load_key,
)
from tidemill.cluster.core.peer_reach import HeldVerdict, PeersVerdict, judge_peers
from tidemill.cluster.interface import Coordination, CoordinationAway, CoordinationSession
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata

SAMPLE_S = 1.0
MS_PER_S = 1_000

log = structlog.get_logger("tidemill.cluster")


class BrokerLoads:
    """The load of this broker and of the others."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterMetadata,
        membership: Membership,
        meter: LoadMeter,
        peers: PeerWatch | None,
        steady_ms: Callable[[], int],
    ) -> None:
        self.meter = meter
        self.producers: Callable[[], Mapping[str, int]] = dict
        """The number of producers of each timeline here; set by the server that knows them."""
        self.writes = 0
        self.verdict = PeersVerdict()
        """Why this broker is degraded by its connections to others."""
        self._coordination = coordination
        self._metadata = metadata
        self._membership = membership
        self._peers = peers
        self.steady_ms = steady_ms
        self._average = LoadAverage()
        self._held = HeldVerdict()
        self._written: LoadReport | None = None
        self._session: CoordinationSession | None = None
        """The session under which the load was written; it was deleted with an earlier one."""
        self._written_ms = self._sampled_ms = steady_ms()
        self._tried_ms = steady_ms()  # the first averages of a start say little
        self._seen: dict[int, tuple[int, int]] = {}
        """For each broker the revision of its load, and when it was first seen."""

    @property
    def own(self) -> LoadReport:
        """The load of this broker now."""
        peers = self._peers
        own = LoadReport(self._average.level, self._average.averages, producers=self.producers())
        if peers is None:
            return own
        trips = peers.round_trips
        return own._replace(round_trips_ms=dict(trips.averages_ms), slow=trips.slow, missing=peers.missing())

    def reports(self) -> Mapping[int, LoadReport]:
        """The loads of all brokers that have published one recently, and of this one."""
        now_ms, view = self.steady_ms(), self._metadata.view
        found = {}
        for node_id, report in view.loads.items():
            revision = view.revision_of(load_key(node_id))
            known = self._seen.get(node_id)
            if known is None or known[0] != revision:
                known = self._seen[node_id] = revision, now_ms
            if now_ms - known[1] < STALE_S * MS_PER_S:
                found[node_id] = report
        found[self._membership.registration.node_id] = self.own
        return found

    async def run(self) -> None:
        """Measure and publish until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.sample()
            await self.publish()

    def sample(self) -> None:
        """Take one sample, and judge the connections to the others."""
        now_ms = self.steady_ms()
        elapsed_s, self._sampled_ms = (now_ms - self._sampled_ms) / MS_PER_S, now_ms
        self._average.add(self.meter.sample(elapsed_s), elapsed_s)
        if self._peers is not None:
            brokers = self._metadata.image.brokers
            missing = {node: report.missing for node, report in self.reports().items() if node in brokers}
            node_id = self._membership.registration.node_id
            self.verdict = self._held.add(judge_peers(node_id, missing), now_ms)

    async def publish(self) -> None:
        """Write the load of this broker, if it is worth a write now."""
        session, now_ms, now = self._membership.session, self.steady_ms(), self.own
        if not self._coordination.shared or session is None:
            return
        if now_ms - self._tried_ms < PUBLISH_S * MS_PER_S:
            return
        key = load_key(self._membership.registration.node_id)
        known = self._written if session is self._session else None
        if not is_worth_writing(known, now, (now_ms - self._written_ms) / MS_PER_S):
            return
        self._tried_ms = now_ms
        try:
            entry = await self._coordination.get(key)
            revision = 0 if entry is None else entry.revision
            if await self._coordination.compare_and_put(key, encode_load(now), revision, session=session) is None:
                return
        except CoordinationAway as error:
            log.warning("broker_load_publish_failed", error=str(error))
            return
        self._written, self._written_ms, self._session = now, now_ms, session
        self.writes += 1
