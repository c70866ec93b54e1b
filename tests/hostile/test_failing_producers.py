"""A producer that sends 95 % bad requests without a pause: the broker does little for it, and others notice nothing."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

import grpc
import pytest

from tidemill import Message, Timeline
from tidemill.model.timeline_errors import BadDueTime
from tidemill.security.core.failing_producers import FAILING_REQUESTS_MIN
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2, timeline_pb2
from tidemill.wire.grpc.broker_pb2_grpc import BrokerServiceStub
from tidemill.wire.grpc.timeline_pb2_grpc import TimelineServiceStub

HONEST_CALLS = 100
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
LIMIT_S = 60


class Attacker(threading.Thread):
    """Calls in a loop until it is stopped; every 20th request is good."""

    def __init__(self, send: Callable[[bool], str]) -> None:
        super().__init__(daemon=True)
        self.results = Counter[str]()
        self.retry_after = set[str]()
        self.stopping = threading.Event()
        self._send = send

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            number += 1
            try:
                self.results[self._send(number % 20 == 0)] += 1
            except grpc.RpcError as error:
                metadata = dict(error.trailing_metadata() or ())
                self.results[str(metadata.get("tidemill-error"))] += 1
                if "tidemill-retry-after-ms" in metadata:
                    self.retry_after.add(str(metadata["tidemill-retry-after-ms"]))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join(LIMIT_S)


@pytest.mark.parametrize("service", ["timelines", "topics"])
def test_bad_requests_without_a_pause_cost_an_honest_producer_nothing(service: str) -> None:
    with Broker(process=True) as broker, grpc.insecure_channel(broker.grpc, options=OWN_CONNECTION) as channel:
        with Timeline(broker.grpc, "line") as timeline:
            timeline.create()
            send = schedule_to(channel) if service == "timelines" else produce_to(channel)
            began_s = time.monotonic()
            with Attacker(send) as attacker:
                while time.monotonic() < began_s + 2 or attacker.results.total() < 2 * FAILING_REQUESTS_MIN:
                    assert attacker.is_alive()
                    time.sleep(0.01)
                for number in range(HONEST_CALLS):
                    timeline.schedule([Message(b"x", time.time() + 3_600, id=f"m{number}")])
            lasted_s = time.monotonic() - began_s
            assert timeline.count() == HONEST_CALLS + attacker.results["scheduled"]
        bad, throttled = (
            ("BadDueTime", "ProducerThrottled") if service == "timelines" else ("bad", "ThrottlingQuotaExceeded")
        )
        assert attacker.results[throttled] > 0
        assert all(0 < int(each) <= 1_000 for each in attacker.retry_after)
        assert attacker.retry_after
        assert attacker.results[bad] <= FAILING_REQUESTS_MIN + 1 + lasted_s


def schedule_to(channel: grpc.Channel) -> Callable[[bool], str]:
    stub = TimelineServiceStub(channel)
    session = stub.Handshake(timeline_pb2.HandshakeRequest(timeline="line"), timeout=LIMIT_S).session

    def send(is_good: bool) -> str:
        message = timeline_pb2.NewMessage(body=b"x", due_ms=4_000_000_000_000 if is_good else -1)
        stub.Schedule(timeline_pb2.ScheduleRequest(session=session, messages=[message]), timeout=LIMIT_S)
        return "scheduled"

    return send


def produce_to(channel: grpc.Channel) -> Callable[[bool], str]:
    stub = BrokerServiceStub(channel)
    stub.CreateTopic(broker_pb2.CreateTopicRequest(name="orders"), timeout=LIMIT_S)

    def send(is_good: bool) -> str:
        record = broker_pb2.Record(value=b"x", timestamp_ms=0 if is_good else -5)
        batch = broker_pb2.Batch(partition=0, records=[record])
        reply = stub.Produce(broker_pb2.ProduceRequest(topic="orders", batches=[batch]), timeout=LIMIT_S)
        return "bad" if reply.outcomes[0].error else "produced"

    return send


def test_our_client_waits_as_long_as_the_broker_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with a bug, corrected in between: its client waits for the time that the broker names."""
    with Broker(flags={"timelines": "memory:"}) as broker, Timeline(broker.grpc, "line") as timeline:
        timeline.create()
        monkeypatch.setattr("tidemill.client.timelines.aio.due_ms", lambda _: -1)
        for _ in range(FAILING_REQUESTS_MIN):
            with pytest.raises(BadDueTime):
                timeline.schedule([Message(b"x", 0)])
        monkeypatch.undo()
        began_s = time.monotonic()
        assert len(timeline.schedule([Message(b"x", time.time() + 3_600)])) == 1
        assert time.monotonic() - began_s > 0.5
        assert timeline.count() == 1
