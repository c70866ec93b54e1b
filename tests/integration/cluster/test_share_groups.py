"""Share groups on three brokers with etcd, while brokers die: leaders of partitions, and coordinators of the state."""

import time
from contextlib import suppress
from functools import partial
from threading import Event, Thread

from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from tests.support.cluster_processes import WAIT_S, Brokers, running_brokers
from tests.support.waiting import eventually

SETTINGS = {"group.share.record.lock.duration.ms": "2000", "group.share.heartbeat.interval.ms": "500"}
RECORDS = 300
LIMIT_S = 2 * WAIT_S


class SteadyShareConsumer(Thread):
    """Accepts every record, and remembers which acknowledgements were confirmed."""

    def __init__(self, bootstrap: str, seen: dict[bytes, int]) -> None:
        super().__init__(daemon=True)
        self.accepted: set[bytes] = set()
        """With or without a confirmation: an acknowledgement whose answer was lost may have been stored."""
        self.repeated: list[bytes] = []
        self._address = bootstrap
        self._everyone = seen
        self._stopping = Event()

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self._address,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 20,
            "reconnect.backoff.max.ms": 500,
        }
        consumer = ShareConsumer(settings)
        consumer.subscribe(["jobs"])
        while not self._stopping.is_set():
            with suppress(KafkaException):
                self._work(consumer)
        consumer.close()

    def _work(self, consumer: ShareConsumer) -> None:
        taken: dict[int, list[bytes]] = {}
        for message in consumer.poll(timeout=0.5):
            value = message.value()
            if message.error() is not None or value is None:
                continue
            if self._everyone.get(value):
                self.repeated.append(value)
            taken.setdefault(message.partition() or 0, []).append(value)
            consumer.acknowledge(message)
            self.accepted.add(value)
        if taken:
            for place, error in consumer.commit_sync(20.0).items():
                if error is None:
                    for value in taken.get(place.partition, []):
                        self._everyone[value] = 1

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)


def prepare(brokers: Brokers) -> None:
    operator = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for created in operator.create_topics([NewTopic("jobs", 3, 3)]).values():
        created.result(WAIT_S)
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    limit = ConfigEntry("share.delivery.count.limit", "100", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[entry, limit])
    for altered in operator.incremental_alter_configs([group]).values():
        altered.result(WAIT_S)


def has_confirmed(confirmed: dict[bytes, int], count: int) -> bool:
    return len(confirmed) >= count


def test_killed_brokers_lose_no_record_and_repeat_no_acknowledged_one() -> None:
    with running_brokers(3, SETTINGS) as brokers:
        prepare(brokers)
        confirmed: dict[bytes, int] = {}
        workers = [SteadyShareConsumer(brokers.bootstrap, confirmed) for _ in range(2)]
        for worker in workers:
            worker.start()
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "linger.ms": 5})
        values = {f"job-{number}".encode() for number in range(RECORDS)}
        for count, value in enumerate(sorted(values), 1):
            producer.produce("jobs", value, partition=count % 3)
            producer.poll(0)
            if count % 20 == 0:
                time.sleep(0.05)
            if count in (RECORDS // 3, 2 * RECORDS // 3):
                eventually(partial(has_confirmed, confirmed, count // 3), within_s=LIMIT_S)
                brokers.kill(1 + count // (RECORDS // 3))
            if count == RECORDS // 2:
                brokers.start(2)
        assert producer.flush(WAIT_S) == 0
        eventually(lambda: workers[0].accepted | workers[1].accepted == values, within_s=LIMIT_S)
        for worker in workers:
            worker.stop()
        assert len(confirmed) > RECORDS / 2
        assert [worker.repeated for worker in workers] == [[], []]
