"""Dead letters of a timeline go to the broker that leads their partition, also when that is another one."""

import time

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.waiting import eventually

from tidemill import Message, Timeline

KEYS = [b"key-%d" % number for number in range(6)]


def test_dead_letters_find_their_leader() -> None:
    with running_brokers(2, grpc="127.0.0.1:0", timelines="memory:") as brokers:
        client = AdminClient({"bootstrap.servers": brokers.bootstrap})
        dead = NewTopic("dead", 2, replica_assignment=[[2], [1]])
        client.create_topics([dead])["dead"].result(WAIT_S)
        server = brokers.servers[1]["grpc"]
        with Timeline(f"{server.host}:{server.port}", "reminders") as timeline:  # type: ignore[union-attr]
            timeline.create(max_attempts=1, dead_letter="topic:dead", lease_ms=1_000)
            timeline.schedule([Message(b"of " + key, due=time.time(), key=key) for key in KEYS])
            for failed, lease in enumerate(timeline.work(idle_ms=10_000), 1):
                lease.release()
                if failed == len(KEYS):
                    break
        eventually(lambda: sorted(map(bytes.decode, buried(brokers))) == [f"of {key.decode()}" for key in KEYS], "lost")


def buried(brokers: Brokers) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "dead", "enable.partition.eof": True})
    consumer.assign([TopicPartition("dead", index, 0) for index in range(2)])
    found: dict[int, list[bytes]] = {0: [], 1: []}
    ended: set[int] = set()
    while len(ended) < 2:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error():
            ended.add(message.partition() or 0)
        else:
            found[message.partition() or 0].append(message.value() or b"")
    consumer.close()
    if all(found.values()):  # some are led here, some there
        return [value for values in found.values() for value in values]
    return []
