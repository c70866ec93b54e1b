"""kill -9 in the middle of topic changes: an acknowledged change is there, any other is there whole or not at all."""

import random
import threading

from tidemill.testing import Broker

ROUNDS = 3
NAMES = [f"topic-{number}" for number in range(6)]
WAIT_S = 30
REQUEST_S = 5


class Changes:
    """Creates and deletes topics, and remembers what the broker answered."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.present: dict[str, bool | None] = dict.fromkeys(NAMES, False)
        self.answered = 0

    def run(self, bootstrap_servers: str, ended: threading.Event) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        while not ended.is_set():
            name = self._rng.choice(NAMES)
            before, self.present[name] = self.present[name], None
            if before:
                future = admin.delete_topics([name], request_timeout=REQUEST_S, operation_timeout=REQUEST_S)[name]
            else:
                future = admin.create_topics([NewTopic(name, 2)], request_timeout=REQUEST_S)[name]
            try:
                future.result(WAIT_S)
            except (KafkaException, TimeoutError):
                return
            self.present[name] = not before
            self.answered += 1

    def check(self, bootstrap_servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        found = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=WAIT_S).topics
        for name, present in self.present.items():
            assert present is None or present == (name in found), name
            assert name not in found or len(found[name].partitions) == 2
            self.present[name] = name in found


def test_kill_in_the_middle_of_topic_changes() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    changes = Changes(rng)
    with Broker(process=True, flags={"grpc": "none", "http": "none"}) as broker:
        for _ in range(ROUNDS):
            ended = threading.Event()
            client = threading.Thread(target=changes.run, args=(broker.bootstrap_servers, ended))
            before = changes.answered
            client.start()
            while changes.answered < before + rng.randrange(2, 30) and client.is_alive():
                client.join(0.001)
            broker.kill()
            ended.set()
            client.join(WAIT_S * 2)
            assert not client.is_alive()
            broker.restart()
            changes.check(broker.bootstrap_servers)
        assert changes.answered >= ROUNDS
