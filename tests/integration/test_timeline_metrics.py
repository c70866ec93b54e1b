"""The metrics of a real broker after real clients have used its timelines: exact numbers."""

import time
from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.metrics import scraped
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.model import timeline_errors as errors
from tidemill.testing import Broker

HOUR_S = 3_600.0
WAIT_S = 30.0
HOUR_MS = 3_600_000


def of_line(found: Mapping[str, float], metric: str, **labels: str) -> float:
    pairs = ",".join(f'{name}="{value}"' for name, value in sorted({"timeline": "line", **labels}.items()))
    return found[f"{metric}{{{pairs}}}"]


def operations(found: Mapping[str, float], metric: str) -> dict[str, float]:
    """The counts of a metric of the timeline by operation, without those that are 0."""
    start, end = f'{metric}{{op="', '",timeline="line"}'
    return {
        key.removeprefix(start).removesuffix(end): value
        for key, value in found.items()
        if key.startswith(start) and key.endswith(end) and value
    }


def waiting(found: Mapping[str, float]) -> list[float]:
    times = ("1s", "10m", "1h", "1d", "any")
    return [of_line(found, "tidemill_timeline_waiting_messages", within=each) for each in times]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_every_step_of_messages_and_leases_is_counted(store: str) -> None:
    with Broker(flags={"timelines": f"{store}:"}) as broker, Timeline(broker.grpc, "line") as timeline:
        timeline.create(lease_ms=60_000)
        now_s = time.time()
        later = [Message(b"later", now_s + HOUR_S, id=name) for name in ("fourth", "fifth")]
        timeline.schedule([Message(b"due", now_s, id=name) for name in ("first", "second", "third")] + later)
        timeline.schedule([Message(b"again", now_s, id="first")])
        found = scraped(broker.http)
        assert operations(found, "tidemill_timeline_messages_total") == {"scheduled": 5, "duplicate": 1}
        assert of_line(found, "tidemill_timeline_available_messages") == 3
        assert waiting(found) == [0, 0, 2, 2, 2]

        work = timeline.work(consumer_id="w", max_in_flight=3, idle_ms=60_000)
        leases = {lease.id: lease for lease in (next(work), next(work), next(work))}
        leases["first"].extend(ms=120_000)
        leases["second"].complete()
        leases["third"].release(delay_ms=2 * HOUR_MS)
        timeline.cancel("fourth")
        timeline.move("fifth", now_s + 2 * HOUR_S)
        timeline.schedule([Message(b"last year", 0.0, id="old")])
        next(work).complete()
        with pytest.raises(errors.UnknownMessage):
            timeline.cancel("fourth")
        with pytest.raises(errors.LeaseIsLive):
            timeline.cancel("first")

        broker.advance(130)  # the extended lease ends, and its message is leased again
        again = next(work)
        assert (again.id, again.attempts) == ("first", 2)
        with pytest.raises(errors.StaleLease):
            leases["first"].complete()
        found = scraped(broker.http)
        check_counts(found)
        check_storage(found, store)
        check_requests(found)
        work.close()


def check_counts(found: Mapping[str, float]) -> None:
    assert operations(found, "tidemill_timeline_messages_total") == {
        "scheduled": 6,
        "duplicate": 1,
        "completed": 2,
        "released": 1,
        "cancelled": 1,
        "moved": 1,
    }
    assert operations(found, "tidemill_timeline_leases_total") == {"leased": 5, "extended": 1, "expired": 1}
    for operation, reason in (
        ("cancelled", "UnknownMessage"),
        ("cancelled", "LeaseIsLive"),
        ("completed", "StaleLease"),
    ):
        assert of_line(found, "tidemill_timeline_errors_total", op=operation, reason=reason) == 1
    assert of_line(found, "tidemill_timeline_leased_bytes_total") == 4 * len(b"due") + len(b"last year")
    assert of_line(found, "tidemill_timeline_past_due_messages_total") == 1
    assert of_line(found, "tidemill_timeline_lateness_seconds_count") == 3
    assert 0 <= of_line(found, "tidemill_timeline_lateness_seconds_sum") < 60
    assert of_line(found, "tidemill_timeline_delivery_attempts_bucket", le="1.0") == 4
    assert of_line(found, "tidemill_timeline_delivery_attempts_count") == 5
    assert of_line(found, "tidemill_timeline_available_messages") == 0
    assert of_line(found, "tidemill_timeline_active_leases") == 1
    assert waiting(found) == [0, 0, 0, 2, 2]
    assert of_line(found, "tidemill_timeline_consumers") == 1
    assert found['tidemill_timeline_commands_total{op="created"}'] == 1


def check_requests(found: Mapping[str, float]) -> None:
    """Each operation in the stream of the consumer, and each call of the producer."""
    counts = {
        key.removeprefix('tidemill_requests_total{api="TimelineService/').removesuffix('",server="grpc"}'): value
        for key, value in found.items()
        if key.startswith('tidemill_requests_total{api="TimelineService/') and value
    }
    assert {name: counts[name] for name in ("Schedule", "Cancel", "Move", "CreateTimeline")} == {
        "Schedule": 3,
        "Cancel": 3,
        "Move": 1,
        "CreateTimeline": 1,
    }
    operations = {name: count for name, count in counts.items() if name.startswith("Work.")}
    assert operations == {"Work.Complete": 3, "Work.Release": 1, "Work.Extend": 1}
    labels = 'api="TimelineService/Work.Complete",error="StaleLease",server="grpc"'
    assert found[f"tidemill_request_errors_total{{{labels}}}"] == 1
    for reason in ("UnknownMessage", "LeaseIsLive"):
        labels = f'api="TimelineService/Cancel",error="{reason}",server="grpc"'
        assert found[f"tidemill_request_errors_total{{{labels}}}"] == 1
    assert found['tidemill_network_latency_seconds_count{partner="grpc_client"}'] >= 1
    for kind in ("producer", "consumer"):
        assert found[f'tidemill_channels{{server="grpc",type="{kind}"}}'] == 1
        assert found[f'tidemill_channel_errors_total{{server="grpc",type="{kind}"}}'] == 0


def check_storage(found: Mapping[str, float], store: str) -> None:
    def queries(operation: str, kind: str, chosen: str) -> float:
        labels = f'{{filter="{chosen}",op="{operation}",store="{store}",type="{kind}"}}'
        count = found[f"tidemill_storage_queries_total{labels}"]
        assert found[f"tidemill_storage_query_duration_seconds_count{labels}"] == count
        return count

    assert queries("create", "lookup", "all") == 4  # the timeline, and three batches of messages
    assert queries("update", "lookup", "processing") >= 2
    assert queries("delete", "lookup", "processing") >= 2
    assert queries("delete", "lookup", "waiting") == 3
    assert queries("update", "lookup", "waiting") == 1
    assert queries("update", "lookup", "available") >= 2
    assert queries("read", "range", "all") >= 3
    assert not [key for key in found if key.startswith("tidemill_storage_query_errors")]


def test_available_messages_are_right_after_a_restart() -> None:
    with Broker(process=True) as broker:
        with Timeline(broker.grpc, "line") as timeline:
            timeline.create(lease_ms=600_000)
            timeline.schedule([Message(b"due", time.time()) for _ in range(7)])
            timeline.schedule([Message(b"later", time.time() + 2 * HOUR_S) for _ in range(4)])
            work = timeline.work(consumer_id="w", max_in_flight=2, idle_ms=60_000)
            next(work)
            eventually(lambda: of_line(scraped(broker.http), "tidemill_timeline_active_leases") == 2)
            broker.kill()
            broker.restart()
        found = scraped(broker.http)
        assert of_line(found, "tidemill_timeline_available_messages") == 5
        assert of_line(found, "tidemill_timeline_active_leases") == 2
        assert waiting(found) == [0, 0, 0, 4, 4]


def test_scheduled_records_are_counted_by_their_topic() -> None:
    with Broker(flags={"timelines": "memory:"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topic = NewTopic("reminders", 1, 1, config={"tidemill.schedule.enable": "true"})
        admin.create_topics([topic])["reminders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for delay_ms in (HOUR_MS, HOUR_MS, 3 * HOUR_MS):
            producer.produce("reminders", b"tea", headers={"tidemill-delay-ms": str(delay_ms)})
        producer.produce("reminders", b"old", headers={"tidemill-deliver-at": "1000"})
        assert producer.flush(WAIT_S) == 0
        delivered = 'tidemill_scheduled_records_delivered_total{topic="reminders"}'
        eventually(lambda: scraped(broker.http).get(delivered) == 1)
        broker.advance(1.5 * HOUR_S)
        eventually(lambda: scraped(broker.http)[delivered] == 3)
        found = scraped(broker.http)
        assert found['tidemill_scheduled_records_waiting{topic="reminders"}'] == 1
        assert found['tidemill_scheduled_records_late{topic="reminders"}'] == 0
        assert found['tidemill_scheduled_records_dropped_total{topic="reminders"}'] == 0
        assert found['tidemill_scheduled_delivery_failures_total{topic="reminders"}'] == 0
        assert found['tidemill_scheduled_lateness_seconds_count{topic="reminders"}'] == 2  # one was due in 1970
        assert found['tidemill_timeline_past_due_messages_total{timeline="__schedule.reminders"}'] == 1
        admin.delete_topics(["reminders"])["reminders"].result(WAIT_S)
        eventually(lambda: not [key for key in scraped(broker.http) if "reminders" in key])
