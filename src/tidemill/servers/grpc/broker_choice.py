"""Chooses brokers for clients: from the clients and the load that every broker publishes (`cluster/core/selector.py`).

One overseer chooses for the whole cluster, the controller, so that clients that ask different brokers at the same
moment are not sent to the same place. A broker that cannot reach it chooses itself.
"""

from collections.abc import Iterable, Mapping

from tidemill.broker.broker import BrokerNode
from tidemill.broker.health import TOPIC
from tidemill.cluster.core.assignments import Assignments
from tidemill.cluster.core.broker_load import LoadReport, is_slow
from tidemill.cluster.core.registration import HEALTHY, INACTIVE, Registration
from tidemill.cluster.core.selector import Candidate, Choice, choose
from tidemill.model.errors import InvalidRequest, TidemillError
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.grpc.call import GrpcCall
from tidemill.servers.grpc.error_status import meaning
from tidemill.servers.grpc.routing import Peer, Routes
from tidemill.wire.grpc import broker_pb2 as wire

ANY_TIMELINE = "-"
"""The name that clients send which are not bound to a timeline."""
CLIENT_ID_CHARS_MAX = 100
FORWARD_TIMEOUT_S = 4.0
PRODUCES = {wire.CLIENT_ROLE_CONSUMER: False, wire.CLIENT_ROLE_PRODUCER: True}


class BrokerChoice:
    """The choices of one broker."""

    def __init__(self, broker: BrokerNode, routes: Routes) -> None:
        self._broker = broker
        self._routes = routes
        self._assignments = {produces: Assignments() for produces in PRODUCES.values()}

    async def answer(self, request: wire.ChooseBrokersRequest, call: GrpcCall) -> wire.ChooseBrokersReply:
        """The brokers that a client should connect to, best first."""
        if len(request.client_id) > CLIENT_ID_CHARS_MAX:
            raise InvalidRequest(f"client_id has {len(request.client_id)} characters; at most {CLIENT_ID_CHARS_MAX}")
        meaning("role", request.role, PRODUCES)
        reply = await self._of_overseer(request, call) or self._own(request, call)
        reply.carries = self._broker.carries
        reply.move = self._should_move(request, reply)
        return reply

    async def _of_overseer(self, request: wire.ChooseBrokersRequest, call: GrpcCall) -> wire.ChooseBrokersReply | None:
        """The answer of the controller; None if this broker has to choose."""
        known = self._broker.view.image.brokers.get(self._broker.view.controller_id)
        if not request.client_id or call.is_forwarded or known is None or known.grpc is None:
            return None
        if known.node_id == self._broker.node_id:
            return None
        peer = Peer(known.node_id, str(known.grpc), known.rack or "")
        try:
            reply: wire.ChooseBrokersReply = await self._routes.forward(
                peer, "ChooseBrokers", request, call, FORWARD_TIMEOUT_S
            )
        except TidemillError:
            return None
        return reply

    def _own(self, request: wire.ChooseBrokersRequest, call: GrpcCall) -> wire.ChooseBrokersReply:
        key = request.timeline or TOPIC + request.topic
        produces = PRODUCES[request.role]
        client_id = "" if key in (ANY_TIMELINE, TOPIC) else request.client_id
        reports = self._broker.loads.reports()
        carriers = carriers_of(self._broker.view.image.brokers, shares_timelines=bool(request.timeline))
        found, counts = self._assignments[produces].assign(
            key, client_id, candidates_of(carriers, reports, produces=produces), round(self._broker.loads.steady_ms())
        )
        sees_loads = may_see_loads(call)
        return wire.ChooseBrokersReply(
            choices=[
                wire.Choice(
                    broker=described(_peer(carriers[choice.node_id]), reports if sees_loads else {}),
                    weight=choice.weight,
                    consumers=counts[choice.node_id],
                    state=carriers[choice.node_id].state,
                )
                for choice in found
            ]
        )

    def _should_move(self, request: wire.ChooseBrokersRequest, reply: wire.ChooseBrokersReply) -> bool:
        """Whether the client should leave this broker, which could serve it.

        A broker without an address for clients is reached by one that only they know. A timeline that is not shared
        exists at one broker only.
        """
        mine = self._broker.membership.registration
        if not mine.carries or mine.grpc is None or not reply.choices or request.timeline == ANY_TIMELINE:
            return False
        if request.timeline and not mine.shares_timelines:
            return False
        return bool(reply.choices[0].broker.node_id != mine.node_id)


def carriers_of(brokers: Mapping[int, Registration], *, shares_timelines: bool = False) -> dict[int, Registration]:
    """The carriers that have a gRPC server; for a timeline those that share timelines, if there are some."""
    found = {
        node: one for node, one in brokers.items() if one.carries and one.state != INACTIVE and one.grpc is not None
    }
    sharing = {node: one for node, one in found.items() if one.shares_timelines}
    return sharing if shares_timelines and sharing else found


def candidates_of(
    carriers: Mapping[int, Registration], reports: Mapping[int, LoadReport], *, produces: bool = False
) -> list[Candidate]:
    """What the selector needs to know of these brokers."""
    found = []
    for node_id, one in carriers.items():
        report = reports.get(node_id, LoadReport())
        clients = report.producers if produces else one.consumers
        healthy, slow = one.state == HEALTHY, is_slow(node_id, reports)
        found.append(Candidate(node_id, clients, healthy, report.level, slow, report.averages.requests_per_s))
    return found


def best_carrier(broker: BrokerNode) -> int | None:
    """A carrier that any call can be relayed to."""
    carriers = carriers_of(broker.view.image.brokers)
    found: Iterable[Choice] = choose("", candidates_of(carriers, broker.loads.reports()))
    return next((one.node_id for one in found), None)


def may_see_loads(call: GrpcCall) -> bool:
    """Whether the client may know the load of brokers."""
    return call.rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def described(peer: Peer, reports: Mapping[int, LoadReport]) -> wire.BrokerInfo:
    """A broker with its load, if it is known."""
    report = reports.get(peer.node_id)
    load = None if report is None else _load(report)
    return wire.BrokerInfo(node_id=peer.node_id, address=peer.address, rack=peer.rack, load=load)


def _load(report: LoadReport) -> wire.BrokerLoad:
    averages = report.averages
    peers = [
        wire.PeerLatency(
            node_id=node, round_trip_ms=report.round_trips_ms.get(node, 0.0), missing=node in report.missing
        )
        for node in sorted(report.round_trips_ms.keys() | report.missing)
    ]
    return wire.BrokerLoad(
        level=report.level.value,
        requests_per_second=averages.requests_per_s,
        queue=round(averages.queue),
        loop_delay_ms=averages.loop_delay_ms,
        cpu_cores=averages.cpu_cores,
        flush_ms=averages.flush_ms,
        disk_used_share=averages.disk_used,
        clients_round_trip_ms=averages.clients_ms,
        peers=peers,
    )


def _peer(one: Registration) -> Peer:
    return Peer(one.node_id, str(one.grpc), one.rack or "")
