"""Which brokers may lead: those that carry partitions, can be reached and have room, and full ones as a last resort."""

from dataclasses import replace
from uuid import UUID

from tidemill.cluster.core.changes import full_brokers, live_brokers
from tidemill.cluster.core.image import Image
from tidemill.cluster.core.registration import INACTIVE, OVERSEER, Endpoint, Registration

GOOD = Registration(1, UUID(int=1), UUID(int=1), kafka=Endpoint("h", 9092))


def test_a_broker_leads_when_it_can_be_read_and_has_room() -> None:
    brokers = {
        1: GOOD,
        2: replace(GOOD, room=False),
        3: replace(GOOD, state=INACTIVE),
        4: replace(GOOD, state=INACTIVE, room=False),
        5: replace(GOOD, kafka=None),
        6: replace(GOOD, roles=(OVERSEER,), room=False),
    }
    image = replace(Image(), brokers=brokers)
    assert live_brokers(image) == {1}
    assert full_brokers(image) == {2}
