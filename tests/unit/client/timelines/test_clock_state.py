"""What a client knows of clocks: each change is logged and reported once."""

import logging

import pytest

from tidemill.client.timelines.clock_state import ClockNotices, ClockState
from tidemill.wire.grpc import timeline_pb2 as wire


def state(*reasons: str, **drifts_ms: int) -> wire.ClockState:
    drifts = [wire.ClockDrift(target=target, drift_ms=ms) for target, ms in drifts_ms.items()]
    return wire.ClockState(in_doubt=bool(reasons), reasons=reasons, drifts=drifts)


def test_each_change_is_logged_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reported: list[ClockState] = []
    notices = ClockNotices(reported.append)
    for each in (
        state(),
        state(store=1_500),
        state(store=1_700),
        state("it jumped", store=1_700),
        state("it jumped", store=1_700, client=-4_000),
        state(),
        state(),
    ):
        notices.take(each)
    assert [record.getMessage() for record in caplog.records] == [
        "clock_drift: store is 1500 ms ahead of the broker",
        "broker_clock_in_doubt: nothing is delivered: it jumped",
        "clock_drift: this machine is -4000 ms ahead of the broker",
        "broker_clock_trusted",
    ]
    assert [sorted(each.drifts_ms) for each in reported] == [["store"], ["store"], ["client", "store"], []]
    assert notices.state == ClockState(in_doubt=False)
