"""The transaction APIs through the server, in every version: answers, fencing in the words of the version, refusals."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import (
    RawClient,
    batch,
    fetch_fields,
    produce_fields,
    request_part,
    running_kafka_server,
)

from tidemill.broker.broker import BrokerNode
from tidemill.model.topics import TopicPartition
from tidemill.transactions.core.state import ProducerIdAndEpoch

pytestmark = pytest.mark.event_loop("uvloop")

INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 22, 24, 25, 26, 28
DESCRIBE_PRODUCERS, DESCRIBE, LIST = 61, 65, 66
VERSIONS = {INIT: range(6), ADD_PARTITIONS: range(4), ADD_OFFSETS: range(5), END: range(6), COMMIT_OFFSETS: range(6)}
FENCED_FROM = {INIT: 4, ADD_PARTITIONS: 2, ADD_OFFSETS: 2, END: 2}
INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90
MINUTE = timedelta(minutes=1)


@asynccontextmanager
async def client_of(folder: Path) -> AsyncIterator[tuple[RawClient, BrokerNode]]:
    async with running_kafka_server(folder) as server:
        await server.broker.topics.create("t", partitions=2)
        client = await RawClient.connect(server)
        try:
            yield client, server.broker
        finally:
            await client.close()


async def init(client: RawClient, name: str | None, version: int = 5, **fields: Any) -> Any:
    return await client.ask(INIT, version, transactional_id=name, transaction_timeout=MINUTE, **fields)


async def add(client: RawClient, name: str, who: Any, version: int, *indexes: int, topic: str = "t") -> list[int]:
    entry = request_part(ADD_PARTITIONS, version, "AddPartitionsToTxnTopic", name=topic, partitions=indexes)
    answer = await client.ask(
        ADD_PARTITIONS,
        version,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=(entry,),
    )
    [result] = answer.results_by_topic_v3_and_below
    assert [part.partition_index for part in result.results_by_partition] == list(indexes)
    return [int(part.partition_error_code) for part in result.results_by_partition]


async def end(client: RawClient, name: str, who: Any, version: int, *, commit: bool = True) -> Any:
    return await client.ask(
        END,
        version,
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=commit,
    )


async def add_offsets(client: RawClient, name: str, who: Any, version: int, group: str = "g") -> int:
    answer = await client.ask(
        ADD_OFFSETS,
        version,
        transactional_id=name,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        group_id=group,
    )
    return int(answer.error_code)


async def stage(client: RawClient, name: str, who: Any, version: int, offset: int, **more: Any) -> list[int]:
    part = request_part(
        COMMIT_OFFSETS,
        version,
        "TxnOffsetCommitRequestPartition",
        **{"partition_index": 1, "committed_offset": offset, "committed_metadata": "note", **more},
    )
    topic = request_part(COMMIT_OFFSETS, version, "TxnOffsetCommitRequestTopic", name="t", partitions=(part,))
    answer = await client.ask(
        COMMIT_OFFSETS,
        version,
        transactional_id=name,
        group_id="g",
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        topics=(topic,),
    )
    return [int(part.error_code) for topic in answer.topics for part in topic.partitions]


async def write(client: RawClient, name: str, who: Any, version: int, *, sequence: int = 0) -> int:
    records = batch(
        b"v",
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        base_sequence=sequence,
        transactional=True,
    )
    fields = produce_fields(version, "t", 0, records) | {"transactional_id": name}
    answer = await client.ask(0, version, **fields)
    return int(answer.responses[0].partition_responses[0].error_code)


def committed(broker: BrokerNode) -> list[int]:
    return [found.offset for found in broker.groups.fetch("g", [TopicPartition("t", 1)])]


@pytest.mark.parametrize("version", VERSIONS[INIT])
async def test_identities_in_every_version(tmp_path: Path, version: int) -> None:
    async with client_of(tmp_path) as (client, _):
        plain = [await init(client, None, version) for _ in range(2)]
        assert [answer.error_code for answer in plain] == [0, 0]
        assert plain[0].producer_id != plain[1].producer_id
        named = [await init(client, "a", version) for _ in range(2)]
        assert named[0].producer_id == named[1].producer_id
        assert [answer.producer_epoch for answer in named] == [0, 1]
        late = await client.ask(INIT, version, transactional_id="a", transaction_timeout=timedelta(hours=1))
        assert int(late.error_code) == 50
        nameless = await init(client, "", version)
        assert int(nameless.error_code) == 42
        endless = await init(client, "a" * 30_000, version)
        assert int(endless.error_code) == 42


async def test_a_transaction_in_every_version(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, broker):
        for version in range(6):
            name = f"tx-{version}"
            who = await init(client, name)
            assert await add(client, name, who, min(version, 3), 0, 1) == [0, 0]
            assert await add_offsets(client, name, who, min(version, 4)) == 0
            assert await stage(client, name, who, version, 10 + version) == [0]
            assert committed(broker) == [9 + version if version else -1]
            done = await end(client, name, who, version)
            assert int(done.error_code) == 0
            assert committed(broker) == [10 + version]
            if version >= 5:
                assert (done.producer_id, done.producer_epoch) == (who.producer_id, who.producer_epoch + 1)
            again = await end(client, name, who, version)
            assert int(again.error_code) == 0
            other = await end(client, name, who, version, commit=False)
            assert int(other.error_code) == 48


@pytest.mark.parametrize("key", FENCED_FROM)
async def test_a_zombie_gets_the_error_of_its_version(tmp_path: Path, key: int) -> None:
    async with client_of(tmp_path) as (client, _):
        zombie = await init(client, "a")
        await init(client, "a")
        for version in VERSIONS[key]:
            wanted = PRODUCER_FENCED if version >= FENCED_FROM[key] else INVALID_PRODUCER_EPOCH
            if key == INIT:
                if version < 3:  # these cannot say who they are, so they are never zombies
                    continue
                given = {"producer_id": zombie.producer_id, "producer_epoch": zombie.producer_epoch}
                code = int((await init(client, "a", version, **given)).error_code)
            elif key == ADD_PARTITIONS:
                [code] = await add(client, "a", zombie, version, 0)
            elif key == ADD_OFFSETS:
                code = await add_offsets(client, "a", zombie, version)
            else:
                code = int((await end(client, "a", zombie, version)).error_code)
            assert code == wanted, f"version {version}"


async def test_a_zombie_can_neither_write_nor_stage(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, broker):
        zombie = await init(client, "a")
        assert await add(client, "a", zombie, 3, 0) == [0]
        assert await write(client, "a", zombie, 11) == 0
        first = await init(client, "a")
        assert int(first.error_code) == 51
        for version in (9, 11, 12):
            assert await write(client, "a", zombie, version, sequence=1) == INVALID_PRODUCER_EPOCH
        for version in VERSIONS[COMMIT_OFFSETS]:
            assert await stage(client, "a", zombie, version, 5) == [INVALID_PRODUCER_EPOCH]
        assert broker.view.partition("t", 0).last_stable_offset == 2
        assert committed(broker) == [-1]


async def test_a_partition_joins_by_being_written_from_version_12_on(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, broker):
        who = await init(client, "a")
        assert await write(client, "a", who, 10) == 48
        assert await write(client, "a", who, 11) == 120
        assert await write(client, "a", who, 12) == 0
        assert broker.transactions.describe("a").partitions == {TopicPartition("t", 0)}
        assert await stage(client, "a", who, 3, 5) == [48]
        assert await stage(client, "a", who, 4, 5) == [120]
        assert await stage(client, "a", who, 5, 5) == [0]
        following = await end(client, "a", who, 5)
        assert following.producer_epoch == who.producer_epoch + 1
        assert await write(client, "a", who, 12, sequence=1) == INVALID_PRODUCER_EPOCH
        assert await write(client, "a", following, 12) == 0
        assert broker.view.partition("t", 0).last_stable_offset == 2


async def test_unknown_partitions_join_nothing(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, broker):
        who = await init(client, "a")
        for version in VERSIONS[ADD_PARTITIONS]:
            assert await add(client, "a", who, version, 0, 7) == [55, 3]
            assert await add(client, "a", who, version, 0, topic="missing") == [3]
            assert await add(client, "", who, version, 0) == [42]
            assert await add(client, "unknown", who, version, 0) == [49]
        assert broker.transactions.describe("a").partitions == frozenset()
        assert await stage(client, "a", who, 5, 5, partition_index=9) == [3]
        assert await stage(client, "a", who, 5, 5, committed_metadata="x" * 5000) == [12]
        assert await add_offsets(client, "a", who, 4, group="") == 24


async def test_admin_apis(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, broker):
        who = await init(client, "a")
        await init(client, "b")
        assert await write(client, "a", who, 12) == 0
        described = await client.ask(DESCRIBE, 0, transactional_ids=("a", "missing", ""))
        assert [(int(each.error_code), each.transaction_state) for each in described.transaction_states] == [
            (0, "Ongoing"),
            (105, ""),
            (42, ""),
        ]
        [topic] = described.transaction_states[0].topics
        assert (topic.topic, topic.partitions) == ("t", (0,))
        for version in (0, 1):
            listed = await client.ask(LIST, version, state_filters=("Ongoing", "Weird"))
            assert [each.transactional_id for each in listed.transaction_states] == ["a"]
            assert listed.unknown_state_filters == ("Weird",)
        entry = request_part(DESCRIBE_PRODUCERS, 0, "TopicRequest", name="t", partition_indexes=(0, 1, 9))
        reported = await client.ask(DESCRIBE_PRODUCERS, 0, topics=(entry,))
        [topic] = reported.topics
        assert [int(part.error_code) for part in topic.partitions] == [0, 0, 3]
        [producer] = topic.partitions[0].active_producers
        assert (producer.producer_id, producer.current_txn_start_offset) == (who.producer_id, 0)
        assert broker.transactions.describe("a").identity == ProducerIdAndEpoch(who.producer_id, 0)


async def test_fetch_lists_what_readers_of_committed_records_drop(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, broker):
        who = await init(client, "a")
        assert await write(client, "a", who, 12) == 0
        for version in (4, 11, 12):
            answer = await client.ask(1, version, **fetch_fields(version, "t", {0: 0}, isolation_level=1))
            [part] = answer.responses[0].partitions
            assert (part.last_stable_offset, part.records or b"") == (0, b"")
        await end(client, "a", who, 5, commit=False)
        for version in (4, 11, 12):
            answer = await client.ask(1, version, **fetch_fields(version, "t", {0: 0}, isolation_level=1))
            [part] = answer.responses[0].partitions
            assert part.last_stable_offset == 2
            assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions] == [
                (who.producer_id, 0)
            ]
        assert broker.view.partition("t", 0).last_stable_offset == 2
