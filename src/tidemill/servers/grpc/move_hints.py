"""Hints for connected clients: use another broker, because the balance of the topic or timeline is off.

Streams and polls ask here about once a second. `cluster/core/hints.py` decides. A call that another broker has
forwarded gets no hint: its client is not connected to this broker.
"""

from typing import NamedTuple

from tidemill.broker.broker import BrokerNode
from tidemill.broker.health import TOPIC
from tidemill.cluster.core.hints import HintPlanner
from tidemill.model.metrics import CounterReading
from tidemill.servers.grpc.broker_choice import candidates_of, carriers_of
from tidemill.servers.grpc.call import GrpcCall


class Hint(NamedTuple):
    """Where a client should move, and why."""

    address: str
    reason: str
    window_ms: int


class MoveHints:
    """The hints of one broker."""

    def __init__(self, broker: BrokerNode) -> None:
        self._broker = broker
        self._given = 0
        self._planner = HintPlanner(broker.node_id, broker.settings.tidemill_balance_window_ms)
        broker.metrics.sources.append(
            lambda: [CounterReading("tidemill_move_hints", "Hints to use another broker, to clients.", self._given)]
        )

    def of_topic(self, topic: str, member_id: str, call: GrpcCall) -> Hint | None:
        """The hint for a member of a group that polls now."""
        return self._hint(TOPIC + topic, member_id, call, is_timeline=False)

    def of_timeline(self, timeline: str, consumer_id: str, call: GrpcCall) -> Hint | None:
        """The hint for a consumer of a timeline. A timeline that is not shared exists at one broker only."""
        if not self._broker.membership.registration.shares_timelines:
            return None
        return self._hint(timeline, consumer_id, call, is_timeline=True)

    def _hint(self, key: str, client_id: str, call: GrpcCall, *, is_timeline: bool) -> Hint | None:
        broker = self._broker
        if call.is_forwarded or not self._planner.window_ms or not broker.membership.alive:
            return None
        carriers = carriers_of(broker.view.image.brokers, shares_timelines=is_timeline)
        now_ms = broker.loads.steady_ms()
        move = self._planner.hint(key, client_id, now_ms, lambda: candidates_of(carriers, broker.loads.reports()))
        if move is None or move.target not in carriers:
            return None
        self._given += 1
        return Hint(str(carriers[move.target].grpc), move.reason.value, self._planner.window_ms)
