"""Every API gets the largest request that the broker reads, while an honest client is served as before."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.hostile.attacked import AttackedBroker, attacked_broker
from tests.hostile.frames import Peer, request
from tests.hostile.large_requests import Names, has_arrays, largest

from tidemill.servers.kafka.api import Api
from tidemill.servers.kafka.listener import standard_router
from tidemill.wire.kafka import fetch, produce
from tidemill.wire.kafka.requests import REQUEST_ITEMS_MAX

TOPICS = 40
CONNECTIONS = 3
GROUPS = 3
ITEMS_MAX = {0: produce.PARTITIONS_MAX, 1: fetch.PARTITIONS_MAX}
LISTING = [api for api in standard_router().listed() if has_arrays(api.key, api.versions[1])]


@pytest.fixture(scope="module")
def broker() -> Iterator[AttackedBroker]:
    with attacked_broker() as attacked, Peer(attacked.address) as peer:
        for number in range(TOPICS):
            attacked.create_topic(peer, f"existing-{number}", 2)
        yield attacked


@pytest.fixture(scope="module")
def names(broker: AttackedBroker) -> Names:
    with Peer(broker.address) as peer:
        answer = peer.ask(3, 12, {"topics": None, "allow_auto_topic_creation": False})
    found = {topic.name: topic.topic_id for topic in answer.topics if topic.name.startswith("existing")}
    return Names(list(found), list(found.values()))


def frame_of(api: Api, names: Names, *, wide: bool) -> bytes:
    items = ITEMS_MAX.get(api.key, REQUEST_ITEMS_MAX)
    version = api.versions[1]
    # Topics are not really created and deleted: the broker's disk is not what is measured.
    unknown = api.name.startswith("Delete")
    return request(api.key, version, largest(api.key, version, items, names, wide=wide, unknown=unknown))


def is_answered(address: tuple[str, int], frame: bytes) -> bool:
    with Peer(address, timeout_s=120) as peer:
        peer.send(frame)
        return peer.receive() is not None


def attack(broker: AttackedBroker, frames: Sequence[bytes]) -> None:
    """Send the requests over a few connections at once."""
    with broker.watched(), ThreadPoolExecutor(CONNECTIONS) as pool:
        assert all(pool.map(partial(is_answered, broker.address), frames))


@pytest.mark.parametrize("group", range(GROUPS))
def test_the_largest_request_of_every_api_leaves_the_event_loop_to_others(
    broker: AttackedBroker, names: Names, group: int
) -> None:
    apis = LISTING[group::GROUPS]
    print([api.name for api in apis])
    attack(broker, [frame_of(api, names, wide=True) for api in apis])


@pytest.mark.long
@pytest.mark.parametrize("wide", [True, False], ids=["wide", "deep"])
@pytest.mark.parametrize("api", LISTING, ids=lambda api: api.name)
def test_each_api_alone(broker: AttackedBroker, names: Names, api: Api, wide: bool) -> None:
    attack(broker, [frame_of(api, names, wide=wide)] * CONNECTIONS)


def test_a_request_with_more_items_closes_the_connection(broker: AttackedBroker) -> None:
    topics = [{"name": "honest"}] * (REQUEST_ITEMS_MAX + 1)
    with Peer(broker.address) as peer:
        peer.send(request(3, 9, {"topics": topics, "allow_auto_topic_creation": False}))
        assert peer.receive() is None


def test_requests_behind_a_large_one_are_answered_in_order(broker: AttackedBroker, names: Names) -> None:
    produce_api = next(api for api in LISTING if api.key == 0)
    metadata = {"topics": [{"name": name} for name in names.topics] * 500, "allow_auto_topic_creation": False}
    large = frame_of(produce_api, names, wide=True)
    frames = [large, request(3, 9, metadata), large, request(18, 0, {})]
    numbered = [each[:8] + number.to_bytes(4, "big") + each[12:] for number, each in enumerate(frames)]
    with Peer(broker.address) as peer:
        peer.send(b"".join(numbered))
        answers = [peer.receive() for _ in numbered]
    assert [int.from_bytes(answer[:4], "big") for answer in answers if answer is not None] == list(range(4))


def test_the_largest_requests_of_real_clients_are_answered(broker: AttackedBroker) -> None:
    with Peer(broker.address, timeout_s=120) as peer:
        many = [{"name": f"topic-{number}"} for number in range(10_000)]
        answer = peer.ask(3, 9, {"topics": many, "allow_auto_topic_creation": False})
        assert len(answer.topics) == 10_000
        parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
        topics = [{"name": f"topic-{number}", "partitions": parts * 4} for number in range(5_000)]
        fields = {"group_id": "many", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        assert len(peer.ask(8, 8, fields).topics) == 5_000
        wanted = [{"name": topic["name"], "partition_indexes": [0, 1, 2, 3]} for topic in topics]
        assert len(peer.ask(9, 7, {"group_id": "many", "topics": wanted, "require_stable": True}).topics) == 5_000


@pytest.mark.long  # a topic of so many partitions takes a while to create
def test_a_commit_of_very_many_partitions_is_kept(broker: AttackedBroker) -> None:
    count = 2_500
    with Peer(broker.address, timeout_s=120) as peer, broker.watched():
        broker.create_topic(peer, "many-partitions", count)
        peer.ask(10, 4, {"key_type": 0, "coordinator_keys": ["kept"]})
        parts = [{"partition_index": n, "committed_offset": n, "committed_metadata": ""} for n in range(count)]
        topics = [{"name": "many-partitions", "partitions": parts}]
        fields = {"group_id": "kept", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        answer = peer.ask(8, 8, fields)
        assert not {part.error_code for part in answer.topics[0].partitions} - {0}
        found = peer.ask(9, 7, {"group_id": "kept", "topics": None, "require_stable": False})
        assert [part.committed_offset for part in found.topics[0].partitions] == list(range(count))
