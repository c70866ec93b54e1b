"""Records in the JSON API: pages, filters, formats, transactions, downloads and writing, with a real broker."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.poisoned import GARBAGE, sealed
from tests.support.waiting import eventually

from tidemill.client.kafka.client import KafkaClient
from tidemill.model.topics import TopicPartition
from tidemill.records.compression import Codec
from tidemill.testing import Broker

WAIT_S = 30.0
NOW_MS = 1_790_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SCRIPT = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def api(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http}/api/v1", timeout=WAIT_S) as client:
        yield client


def create(broker: Broker, topic: str, partitions: int = 1, **overrides: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {name.replace("_", "."): value for name, value in overrides.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(WAIT_S)


def producer(broker: Broker, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **options})


def page(api: httpx.Client, topic: str, **query: Any) -> dict[str, Any]:
    answer = api.get(f"/topics/{topic}/records", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def places(found: dict[str, Any]) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in found["records"]]


def values(found: dict[str, Any]) -> list[str]:
    return [each["value"] for each in found["records"]]


def tailed(stream: httpx.Response) -> Iterator[dict[str, Any]]:
    """The documents of a stream of events."""
    for line in stream.iter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


def fill_in_turns(broker: Broker, topic: str, *, partitions: int, records: int) -> None:
    """Records of one millisecond after the other, in the partitions in turns."""
    create(broker, topic, partitions)
    writer = producer(broker)
    for number in range(records):
        writer.produce(topic, b"value %d" % number, b"key %d" % number, number % partitions, timestamp=NOW_MS + number)
    assert writer.flush(WAIT_S) == 0


def test_pages_of_all_partitions_are_merged_by_time(broker: Broker, api: httpx.Client) -> None:
    fill_in_turns(broker, "merged", partitions=3, records=100)
    newest = page(api, "merged", rows=40)
    assert values(newest) == [f"value {number}" for number in range(99, 59, -1)]
    older = page(api, "merged", rows=40, position=newest["next"])
    assert values(older) == [f"value {number}" for number in range(59, 19, -1)]
    last = page(api, "merged", rows=40, position=older["next"])
    assert values(last) == [f"value {number}" for number in range(19, -1, -1)]
    assert last["next"] is None
    assert last["scan"]["complete"]
    again = page(api, "merged", rows=40, position=last["previous"], back=True)
    assert values(again) == values(older)
    assert values(page(api, "merged", rows=40, position=again["previous"], back=True)) == values(newest)
    assert values(page(api, "merged", rows=40, position=again["next"])) == values(last)


def test_pages_from_the_oldest_record(broker: Broker, api: httpx.Client) -> None:
    fill_in_turns(broker, "forward", partitions=2, records=25)
    first = page(api, "forward", order="oldest", rows=10)
    second = page(api, "forward", order="oldest", rows=10, position=first["next"])
    third = page(api, "forward", order="oldest", rows=10, position=second["next"])
    assert values(first) + values(second) + values(third) == [f"value {number}" for number in range(25)]
    assert third["next"] is None
    assert values(page(api, "forward", order="oldest", rows=10, position=third["previous"], back=True)) == values(
        second
    )


def test_the_start_by_partition_offset_and_time(broker: Broker, api: httpx.Client) -> None:
    fill_in_turns(broker, "starts", partitions=2, records=20)
    assert places(page(api, "starts", partition=1, rows=2)) == [(1, 9), (1, 8)]
    assert places(page(api, "starts", partition=1, offset=4, rows=2)) == [(1, 4), (1, 3)]
    assert places(page(api, "starts", partition=1, offset=4, order="oldest", rows=2)) == [(1, 4), (1, 5)]
    assert places(page(api, "starts", partition=0, offset=-3, order="oldest")) == [(0, 7), (0, 8), (0, 9)]
    at = NOW_MS + 7
    assert values(page(api, "starts", time=at, order="oldest", rows=2)) == ["value 7", "value 8"]
    assert values(page(api, "starts", time=at, rows=2)) == ["value 7", "value 6"]
    assert values(page(api, "starts", time=NOW_MS + 1_000, order="oldest")) == []
    written = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW_MS / 1000))
    assert values(page(api, "starts", time=written, order="oldest", rows=1)) == ["value 0"]


def test_wrong_starts_and_filters_are_one_sentence(broker: Broker, api: httpx.Client) -> None:
    create(broker, "wrong", 2)
    for query, status, words in (
        ({"partition": 2}, 404, "topic wrong has partitions 0 to 1, not 2"),
        ({"position": "x"}, 400, "the position is not valid; use one of an earlier page"),
        ({"position": "7:1"}, 400, "the position is of other partitions; start again without it"),
        ({"time": "soon"}, 400, "'soon' is not a time; write 2026-11-16T10:00, or milliseconds"),
        ({"where": "$.a >"}, 400, "the condition is not valid at position 5"),
        ({"value": "(", "match": "regex"}, 400, "pattern '(' is invalid at position 1"),
        ({"rows": 0}, 400, "the query of the URL is not valid"),
        ({"what": 1}, 400, "the query of the URL is not valid"),
    ):
        for path in ("records", "records/events") if "value" in query or "where" in query else ("records",):
            answer = api.get(f"/topics/wrong/{path}", params=query)
            assert answer.status_code == status, answer.text
            assert answer.json()["error"].startswith(words)
    assert api.get("/topics/none/records").status_code == 404


def test_filters(broker: Broker, api: httpx.Client) -> None:
    create(broker, "filtered", 2)
    writer = producer(broker)
    for number in range(200):
        body = json.dumps({"order": {"total": number, "items": [{"sku": f"s{number % 7}"}]}})
        writer.produce(
            "filtered", body, f"customer-{number % 10}", headers=[("trace", b"t%d" % number), ("trace", b"x")]
        )
    writer.produce("filtered", b"\xff\x00binary", None)
    writer.produce("filtered", None, "customer-3")
    assert writer.flush(WAIT_S) == 0

    def count(**query: Any) -> int:
        found = page(api, "filtered", rows=200, **query)
        assert found["scan"]["complete"]
        assert found["scan"]["records"] == 202
        return len(found["records"])

    assert count(key="customer-3") == 21
    assert count(key="^customer-[12]$", match="regex") == 40
    assert count(value='"total": 17,') == 1
    assert count(header="trace=t42") == 1
    assert count(header="^trace=x$", match="regex") == 200
    assert count(where="$.order.total >= 150 and not $.order.items[*].sku = 's0'") == 43
    assert count(where="$headers.trace = 't9' or $.order.total = 10") == 2
    assert count(key="customer-3", where="$.order.total > 100") == 10
    assert count(key="customer-99") == 0


def test_formats_headers_and_facts(broker: Broker, api: httpx.Client) -> None:
    create(broker, "shown")
    writer = producer(broker)
    headers: list[tuple[str, Any]] = [("a", b"1"), ("a", b"2"), ("binary", b"\xff\x00"), ("none", None)]
    writer.produce("shown", SCRIPT, SCRIPT, 0, timestamp=NOW_MS, headers=headers)
    writer.produce("shown", b'{"a": [1, 2]}', b"\x00\x01", 0)
    writer.produce("shown", b"\xff\xfe", None, 0)
    writer.produce("shown", None, "gone", 0)
    writer.produce("shown", b"x" * 10_000, "long", 0)
    assert writer.flush(WAIT_S) == 0
    rows = page(api, "shown", order="oldest")["records"]
    assert rows[0]["value"] == rows[0]["value_view"]["text"] == SCRIPT
    assert rows[0]["headers"] == [
        {"name": "a", "value": "1"},
        {"name": "a", "value": "2"},
        {"name": "binary", "value": "\ufffd\x00", "value_base64": b64encode(b"\xff\x00").decode()},
        {"name": "none", "value": None},
    ]
    assert rows[0]["timestamp"] == NOW_MS
    assert rows[0]["batch"]["timestamp_type"] == "create"
    assert rows[0]["batch"]["records"] == 5
    assert rows[0]["transaction"] == "none"
    assert [each["value_view"]["format"] for each in rows] == ["text", "json", "hex", "null", "text"]
    assert rows[1]["key_view"] == {**rows[1]["key_view"], "format": "hex", "text": "00 01"}
    assert rows[2]["value_base64"] == b64encode(b"\xff\xfe").decode()
    assert (rows[4]["value_view"]["bytes"], rows[4]["value_view"]["cut"]) == (10_000, True)
    assert len(rows[4]["value"]) < 10_000
    whole = api.get("/topics/shown/records/0/4").json()
    assert (whole["value"], whole["value_view"]["cut"]) == ("x" * 10_000, False)
    pretty = api.get("/topics/shown/records/0/1").json()["value_view"]["text"]
    assert pretty == '{\n  "a": [\n    1,\n    2\n  ]\n}'
    base64 = page(api, "shown", order="oldest", value_format="base64")["records"][2]["value_view"]
    assert base64["text"] == b64encode(b"\xff\xfe").decode()
    file = api.get("/topics/shown/records/0/2/payload")
    assert (file.content, file.headers["content-type"]) == (b"\xff\xfe", "application/octet-stream")
    assert file.headers["content-disposition"] == 'attachment; filename="shown-0-2-value.bin"'
    assert api.get("/topics/shown/records/0/0/payload", params={"part": "header", "header": 2}).content == b"\xff\x00"
    assert api.get("/topics/shown/records/0/3/payload").status_code == 404
    for place in ("0/99", "0/x", "1/0", "0/99999999999999999999", "x/0"):
        assert api.get(f"/topics/shown/records/{place}").status_code == 404, place


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches(broker: Broker, api: httpx.Client, codec: str) -> None:
    topic = f"packed-{codec}"
    create(broker, topic)
    writer = producer(broker, **{"compression.type": codec, "linger.ms": 100})
    for number in range(500):
        writer.produce(topic, b"value %d " % number + b"a" * 100, None, 0)
    assert writer.flush(WAIT_S) == 0
    found = page(api, topic, rows=3, offset=250)
    assert places(found) == [(0, 250), (0, 249), (0, 248)]
    assert found["records"][0]["batch"]["compression"] == codec


def test_transactions_are_committed_aborted_or_open(broker: Broker, api: httpx.Client) -> None:
    create(broker, "money")
    for name, ends in (("done", "commit"), ("undone", "abort")):
        writer = producer(broker, **{"transactional.id": name})
        writer.init_transactions(WAIT_S)
        writer.begin_transaction()
        writer.produce("money", name)
        writer.flush(WAIT_S)
        if ends == "commit":
            writer.commit_transaction(WAIT_S)
        else:
            writer.abort_transaction(WAIT_S)
    plain = producer(broker)
    plain.produce("money", "plain")
    plain.flush(WAIT_S)
    waiting = producer(broker, **{"transactional.id": "waiting"})
    waiting.init_transactions(WAIT_S)
    waiting.begin_transaction()
    waiting.produce("money", "waiting")
    waiting.flush(WAIT_S)
    plain.produce("money", "behind")
    plain.flush(WAIT_S)
    assert values(page(api, "money", order="oldest")) == ["done", "plain"]
    for order in ("oldest", "newest"):
        rows = page(api, "money", uncommitted=True, order=order)["records"]
        assert {each["value"]: each["transaction"] for each in rows} == {
            "done": "committed",
            "undone": "aborted",
            "plain": "none",
            "waiting": "open",
            "behind": "none",
        }
    done = next(each for each in rows if each["value"] == "done")
    assert done["batch"]["transactional"]
    assert (done["batch"]["producer_epoch"], done["sequence"]) == (0, 0)
    producers = api.get("/topics/money/producers").json()
    assert producers["open_transactions"] == 1, producers
    assert producers["producers"][0]["transaction_start"] == 5
    only = api.get("/topics/money/producers", params={"transactional": True}).json()
    assert (only["total"], len(only["producers"])) == (1, 1)
    assert api.get("/topics/money/records/0/2").json()["transaction"] == "aborted"
    waiting.abort_transaction(WAIT_S)
    assert values(page(api, "money", order="oldest")) == ["done", "plain", "behind"]


def test_compaction_leaves_holes(broker: Broker, api: httpx.Client) -> None:
    create(
        broker,
        "compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0",
        segment_bytes="1024",
        delete_retention_ms="0",
    )
    writer = producer(broker, **{"batch.num.messages": 1})
    for number in range(60):
        writer.produce("compacted", b"%d" % number + b"x" * 200, b"key %d" % (number % 3), 0)
        writer.flush(WAIT_S)
    eventually(lambda: len(page(api, "compacted", rows=200)["records"]) < 40, "compaction has removed records")

    def agree() -> bool:
        """Compaction may go on between the requests."""
        forward, backward = page(api, "compacted", order="oldest", rows=200), page(api, "compacted", rows=200)
        hole = next(at for at in range(60) if (0, at) not in places(forward))
        after = page(api, "compacted", rows=2, offset=hole, order="oldest")
        before = page(api, "compacted", rows=2, offset=hole)
        return (
            places(forward) == places(backward)[::-1]
            and places(backward)[:3] == [(0, 59), (0, 58), (0, 57)]
            and places(after) == [each for each in places(forward) if each[1] > hole][:2]
            and places(before) == [each for each in places(backward) if each[1] < hole][:2]
            and api.get(f"/topics/compacted/records/0/{hole}").status_code == 404
        )

    eventually(agree, "both directions show the same records, with holes")


def test_deleted_records_in_the_middle_of_a_batch(broker: Broker, api: httpx.Client) -> None:
    create(broker, "trimmed")
    writer = producer(broker, **{"linger.ms": 100})
    for number in range(20):
        writer.produce("trimmed", b"value %d" % number, None, 0)
    assert writer.flush(WAIT_S) == 0
    answer = api.post("/topics/trimmed/delete-records", json={"partitions": [{"partition": 0, "before": 13}]})
    assert answer.json() == {"topic": "trimmed", "partitions": [{"partition": 0, "start": 13}]}
    assert places(page(api, "trimmed", order="oldest"))[0] == (0, 13)
    assert places(page(api, "trimmed"))[-1] == (0, 13)
    assert api.get("/topics/trimmed/records/0/12").status_code == 404
    far = api.post("/topics/trimmed/delete-records", json={"partitions": [{"partition": 0, "before": 99}]})
    assert far.status_code == 400


def test_scheduled_records_appear_when_they_are_due() -> None:
    with Broker() as own, httpx.Client(base_url=f"{own.http}/api/v1", timeout=WAIT_S) as api:
        create(own, "later", tidemill_schedule_enable="true")
        writer = producer(own)
        writer.produce("later", "now", "a", 0)
        writer.produce("later", "soon", "b", 0, headers=[("tidemill-delay-ms", b"3600000")])
        writer.produce("later", "now too", "c", 0)
        assert writer.flush(WAIT_S) == 0
        for order, wanted in (("oldest", ["now", "now too"]), ("newest", ["now too", "now"])):
            assert values(page(api, "later", order=order)) == wanted
        own.advance(3601)
        eventually(lambda: values(page(api, "later", rows=1)) == ["soon"], "it is delivered")


def test_an_unreadable_batch_is_reported_and_skipped(broker: Broker, api: httpx.Client) -> None:
    create(broker, "damaged")
    writer = producer(broker)
    writer.produce("damaged", "before", None, 0)
    writer.flush(WAIT_S)
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
        client.produce(TopicPartition("damaged", 0), sealed(GARBAGE, 3, Codec.GZIP))
    writer.produce("damaged", "after", None, 0)
    writer.flush(WAIT_S)
    for order, wanted in (("oldest", ["before", "after"]), ("newest", ["after", "before"])):
        found = page(api, "damaged", order=order)
        assert values(found) == wanted
        [batch] = found["unreadable"]
        assert (batch["partition"], batch["offset"], batch["last_offset"], batch["resume"]) == (0, 1, 3, 4)
        assert batch["error"]
    answer = api.get("/topics/damaged/records/0/2")
    assert answer.status_code == 409
    assert "continue at offset 4" in answer.json()["error"]


def test_produce_and_tombstone(broker: Broker, api: httpx.Client) -> None:
    create(broker, "written", 4)
    bodies: tuple[tuple[dict[str, Any], tuple[Any, Any]], ...] = (
        ({"key": {"data": "k"}, "value": {"data": "text"}}, ("k", "text")),
        ({"key": {"data": "k"}, "value": {"format": "json", "data": '{"a":1}'}}, ("k", '{"a":1}')),
        ({"key": {"format": "hex", "data": "6b"}, "value": {"format": "base64", "data": "dg=="}}, ("k", "v")),
        ({"key": {"data": "k"}, "value": None}, ("k", None)),
    )
    partitions = set()
    for body, wanted in bodies:
        answer = api.post("/topics/written/records", json={**body, "headers": [{"name": "h", "value": {"data": "1"}}]})
        assert answer.status_code == 200, answer.text
        place = answer.json()
        partitions.add(place["partition"])
        found = api.get(f"/topics/written/records/{place['partition']}/{place['offset']}").json()
        assert (found["key"], found["value"]) == wanted
        assert found["headers"] == [{"name": "h", "value": "1"}]
        assert abs(found["timestamp"] - time.time() * 1000) < WAIT_S * 1000
    assert len(partitions) == 1
    reference = producer(broker, partitioner="murmur2_random")
    delivered: list[int] = []
    reference.produce("written", "x", "k", on_delivery=lambda _, message: delivered.append(message.partition()))
    reference.flush(WAIT_S)
    assert {*delivered} == partitions
    assert api.post("/topics/written/records", json={"partition": 2, "value": {"data": "x"}}).json()["partition"] == 2
    for body, words in (
        ({"value": {"format": "json", "data": "{"}}, "the value is not valid json"),
        ({"value": {"format": "hex", "data": "6"}}, "the value is not valid hex"),
        ({"value": {"format": "base64", "data": "!"}}, "the value is not valid base64"),
        ({"value": {"data": "\ud800"}}, "the body is not"),
    ):
        answer = api.post(
            "/topics/written/records", content=json.dumps(body), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(words)
    assert api.post("/topics/written/records", json={"partition": 9, "value": None}).status_code == 404
    assert api.post("/topics/none/records", json={"value": None}).status_code == 404


def test_a_keyless_record_is_refused_by_a_compacted_topic(broker: Broker, api: httpx.Client) -> None:
    create(broker, "keyed", cleanup_policy="compact")
    answer = api.post("/topics/keyed/records", json={"value": {"data": "x"}})
    assert answer.status_code == 400
    assert "key" in answer.json()["error"]
    assert page(api, "keyed")["records"] == []


def test_download_as_json_lines(broker: Broker, api: httpx.Client) -> None:
    create(broker, "exported", 2)
    writer = producer(broker)
    for number in range(30_000):
        writer.produce("exported", b"value %d" % number, b"\xff%d" % number, number % 2)
        if number % 1000 == 0:
            writer.poll(0)
    assert writer.flush(WAIT_S) == 0
    answer = api.get("/topics/exported/records.jsonl")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [(each["partition"], each["offset"]) for each in lines] == [(p, o) for p in (0, 1) for o in range(15_000)]
    assert lines[1] == {
        "topic": "exported",
        "partition": 0,
        "offset": 1,
        "timestamp": lines[1]["timestamp"],
        "key": "\ufffd2",
        "key_base64": b64encode(b"\xff2").decode(),
        "value": "value 2",
        "headers": [],
    }
    some = api.get("/topics/exported/records.jsonl", params={"value": "value 77", "limit": 50, "partition": 1})
    assert len(some.text.splitlines()) == 50
    none = api.get("/topics/exported/records.jsonl", params={"value": "nothing of this kind"})
    assert (none.status_code, none.text) == (200, "")
    with api.stream("GET", "/topics/exported/records.jsonl") as answer:  # a client that leaves
        next(answer.iter_lines())
    assert len(api.get("/topics/exported/records.jsonl", params={"limit": 1}).text.splitlines()) == 1


def test_new_records_are_sent_as_they_come(broker: Broker, api: httpx.Client) -> None:
    create(broker, "tailed", 3)
    writer = producer(broker)
    writer.produce("tailed", "old")
    writer.flush(WAIT_S)
    with api.stream("GET", "/topics/tailed/records/events", params={"value": "wanted"}) as stream:
        documents = tailed(stream)
        assert next(documents)["records"] == []  # where the stream starts
        for number in range(3):
            writer.produce("tailed", f"wanted {number}", partition=number, timestamp=NOW_MS + number)
            writer.produce("tailed", "other", partition=number)
        writer.flush(WAIT_S)
        found: list[str] = []
        while len(found) < 3:
            found += values(next(documents))
        assert sorted(found) == ["wanted 0", "wanted 1", "wanted 2"]


def test_the_next_stream_continues_where_one_has_ended(broker: Broker, api: httpx.Client) -> None:
    create(broker, "resumed", 2)
    writer = producer(broker)
    path = "/topics/resumed/records/events"
    with api.stream("GET", path) as stream:
        position = next(tailed(stream))["position"]
    for number in range(6):
        writer.produce("resumed", f"meanwhile {number}", partition=number % 2)
    writer.flush(WAIT_S)
    with api.stream("GET", path, params={"position": position}) as stream:
        first = next(tailed(stream))
    assert sorted(values(first)) == [f"meanwhile {number}" for number in range(6)]
    with api.stream("GET", path, params={"position": first["position"]}) as stream:
        assert next(tailed(stream))["records"] == []
    for wrong, words in (("x", "the position is not valid"), ("7:0", "the position is of other partitions")):
        answer = api.get(path, params={"position": wrong})
        assert (answer.status_code, answer.json()["error"].startswith(words)) == (400, True)
