"""A process that may open few files still serves a useful number of clients, and is not stalled by more."""

import resource
from contextlib import ExitStack

import pytest
from tests.hostile.attacked import attacked_broker
from tests.hostile.frames import Peer

from tidemill.doors.kafka.server import connections_max

FILES = 256
SERVED = 40
ATTACKING = 200


@pytest.mark.parametrize(
    ("file_descriptors", "asked", "accepted"),
    [(256, 10_000, 64), (1_024, 10_000, 768), (65_536, 10_000, 10_000), (20, 10_000, 5), (2, 10, 1)],
)
def test_connections_get_a_share_of_few_file_descriptors(file_descriptors: int, asked: int, accepted: int) -> None:
    assert connections_max(file_descriptors, asked) == accepted


def test_a_broker_with_256_file_descriptors_serves_many_clients_and_outlives_more() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(attacked_broker())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        peers = [stack.enter_context(Peer(broker.address)) for _ in range(SERVED)]
        for peer in peers:
            assert not peer.ask(18, 0, {}).error_code
        for _ in range(ATTACKING):
            stack.enter_context(Peer(broker.address))
        for peer in peers:
            peer.close()
        with Peer(broker.address) as newcomer:
            assert not newcomer.ask(18, 0, {}).error_code
