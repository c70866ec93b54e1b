"""Metrics of a cluster: one controller, and lag of partitions that other brokers lead."""

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.metrics import scraped
from tests.support.waiting import eventually

TOPIC, GROUP, PARTITIONS = "orders", "mailer", 6


def test_lag_and_controller_are_reported_once() -> None:
    with running_brokers(2, racks=False, http="127.0.0.1:0") as brokers:
        client = {"bootstrap.servers": brokers.bootstrap}
        admin, producer = AdminClient(client), Producer({**client, "transactional.id": "orders"})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        producer.init_transactions(30)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for _ in range(3):
                producer.produce(TOPIC, b"v", partition=partition)
        producer.commit_transaction(30)
        leaders = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        assert {each.leader for each in leaders.values()} == set(brokers.servers)
        reader = Consumer({**client, "group.id": GROUP})
        commits = [TopicPartition(TOPIC, partition, 1 if partition < 2 else 3) for partition in range(PARTITIONS)]
        reader.commit(offsets=commits, asynchronous=False)
        reader.close()
        assert sum(each["tidemill_controller"] for each in scrape(brokers)) == 1
        assert sum(each["tidemill_offline_partitions"] for each in scrape(brokers)) == 0
        assert sum(each["tidemill_under_min_isr_partitions"] for each in scrape(brokers)) == 0

        for found in scrape(brokers):
            for partner in ("broker", "coordination"):
                for direction in ("in", "out"):
                    assert found[f'tidemill_network_bytes_total{{direction="{direction}",partner="{partner}"}}'] > 0
            assert found['tidemill_network_latency_seconds_count{partner="coordination"}'] > 0
            assert found["tidemill_brokers"] == 2
        assert len({each["tidemill_isr_shrinks_total"] for each in scrape(brokers)}) == 1  # none yet

        def is_right() -> bool:
            lag = f'tidemill_group_lag_records{{group="{GROUP}",topic="{TOPIC}"}}'
            return [each[lag] for each in scrape(brokers) if lag in each] == [3 + 3]

        # Offsets 1 to 3 of two partitions: two records and the marker behind them. The other four have nothing to read.
        eventually(is_right, "the coordinator does not report the lag")
        reader = Consumer({**client, "group.id": GROUP})
        reader.commit(offsets=[TopicPartition(TOPIC, partition, 3) for partition in range(2)], asynchronous=False)
        reader.close()
        lag = f'tidemill_group_lag_seconds{{group="{GROUP}",topic="{TOPIC}"}}'
        eventually(lambda: [each[lag] for each in scrape(brokers) if lag in each] == [0], "the lag does not reach 0")


def test_a_lost_broker_is_counted_until_it_is_back() -> None:
    with running_brokers(2, racks=False, http="127.0.0.1:0") as brokers:
        client = {"bootstrap.servers": brokers.bootstrap}
        admin, producer = AdminClient(client), Producer(client)
        safe = NewTopic("safe", 2, 2, config={"min.insync.replicas": "2"})
        admin.create_topics([safe])["safe"].result(30)
        admin.create_topics([NewTopic("alone", 2, 1)])["alone"].result(30)
        for partition in range(2):
            producer.produce("safe", b"v", partition=partition)
        assert producer.flush(30) == 0
        before = scrape(brokers)
        assert all(each["tidemill_fsync_duration_seconds_count"] > 0 for each in before)
        assert {each["tidemill_under_replicated_partitions"] for each in before} == {0}
        brokers.kill(2)
        left = brokers.servers[1]

        def of_survivor(name: str) -> float:
            return scraped(f"http://{left['http']}").get(name, 0)

        eventually(lambda: of_survivor("tidemill_under_min_isr_partitions") >= 2, "both partitions lack a replica")
        assert of_survivor("tidemill_under_replicated_partitions") >= 2
        assert of_survivor("tidemill_brokers") == 1
        eventually(
            lambda: of_survivor("tidemill_offline_partitions") >= 1, "a partition without a leader is not counted"
        )
        assert of_survivor("tidemill_unclean_elections_total") == 0
        brokers.start(2)
        eventually(lambda: of_survivor("tidemill_under_replicated_partitions") == 0, "the replicas do not catch up")
        eventually(lambda: of_survivor("tidemill_offline_partitions") == 0, "a partition is still without a leader")
        assert of_survivor("tidemill_isr_expands_total") >= 1
        lag = 'tidemill_replica_lag_records{follower="2"}'
        eventually(lambda: scraped(f"http://{left['http']}").get(lag) == 0, "the follower lags")


def scrape(brokers: Brokers) -> list[dict[str, float]]:
    return [scraped(f"http://{server['http']}") for server in brokers.servers.values()]
