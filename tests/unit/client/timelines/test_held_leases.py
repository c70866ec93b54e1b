"""What a consumer holds: until it is completed or released, or has expired."""

from tidemill.client.timelines.held_leases import HeldLeases
from tidemill.wire.grpc import timeline_pb2 as wire


def operation(action: wire.Action, seq: int = 1, ms: int = 0) -> wire.Operation:
    return wire.Operation(action=action, seq=seq, token=7, ms=ms)


def test_a_lease_counts_until_it_is_settled_or_ends() -> None:
    held = HeldLeases()
    for seq in (1, 2, 3):
        held.add(seq, 7, ends_s=10.0 * seq, now_s=0.0)
    assert held.count(0.0) == 3
    held.operated(operation(wire.ACTION_COMPLETE), 1.0, succeeded=True)
    assert held.count(1.0) == 2
    held.operated(operation(wire.ACTION_EXTEND, 2, 60_000), 5.0, succeeded=True)
    held.operated(operation(wire.ACTION_EXTEND, 3, 60_000), 5.0, succeeded=False)
    assert held.count(29.0) == 2
    assert held.count(30.0) == 1
    held.operated(operation(wire.ACTION_RELEASE, 2), 31.0, succeeded=False)
    assert held.count(31.0) == 0, "the broker does not know it: it has ended"


def test_an_extension_of_a_lease_that_is_over_is_nothing() -> None:
    held = HeldLeases()
    held.operated(operation(wire.ACTION_EXTEND, 9, 1_000), 0.0, succeeded=True)
    assert held.count(0.0) == 0
