"""Topics as streams on a real local Spark: micro-batches, checkpoints, and what may happen to a topic meanwhile."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.integration.spark.queries import run, stream, to_topic
from tests.integration.spark.topics import Outside
from tests.support.waiting import eventually

from tidemill.testing import Broker

# Next to other tests on two busy cores the slowest takes 15 s, and the first one starts Spark.
pytestmark = pytest.mark.timeout(120)


def sizes(query: StreamingQuery) -> list[int]:
    """Rows of the micro-batches so far that had any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_query_continues_from_its_checkpoint_and_shows_its_lag(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic, maxOffsetsPerTrigger="40", **{"kafka.group.id": topic})
    outside.write_values(topic, range(100))
    outside.write_values(topic, range(100, 120), partition=1)
    first = run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(120))
    assert sizes(first) == [39, 39, 39, 3]
    assert outside.group(topic) == {0: 100, 1: 20}
    assert json.loads(first.recentProgress[0].sources[0].latestOffset)[topic] == {"0": 100, "1": 20}

    outside.write_values(topic, range(120, 150))
    assert outside.group(topic)[0] == 100  # the lag of 30 that every tool shows
    run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(150))
    assert outside.group(topic) == {0: 130, 1: 20}


def test_a_micro_batch_that_runs_again_is_not_written_again(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic)
    outside.write_values(topic, range(50))
    run(rows, outside, copy, tmp_path)
    # As after a crash of the driver between the sink's commit and Spark's own note of it.
    for note in (tmp_path / "commits").iterdir():
        note.unlink()
    outside.write_values(topic, range(50, 60))
    run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(60))


def test_a_trigger_can_be_limited_by_bytes(spark: SparkSession, outside: Outside, topic: str, tmp_path: Path) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write(topic, ({"value": f"{n:01000}", "partition": n % 2} for n in range(200)))
    query = run(stream(spark, outside, subscribe=topic, maxBytesPerTrigger="70000"), outside, copy, tmp_path)
    assert outside.values(copy) == list(range(200))
    assert len(sizes(query)) >= 3
    assert max(sizes(query)) <= 70


def test_a_trigger_waits_until_there_is_enough(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write_values(topic, [0])
    rows = stream(spark, outside, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    query = to_topic(rows, outside, copy, tmp_path, processingTime="100 milliseconds")
    try:
        eventually(lambda: not query.isActive or outside.values(copy) == [0])  # the first one begins at once
        outside.write_values(topic, range(1, 6))
        eventually(lambda: not query.isActive or query.status["message"] == "Waiting for data to arrive")
        outside.write_values(topic, range(6, 12), partition=1)
        eventually(lambda: not query.isActive or len(sizes(query)) > 1)  # Spark reports it after the rows can be read
        assert query.exception() is None
        assert sizes(query) == [1, 11]
        assert outside.values(copy) == list(range(12))
    finally:
        query.stop()
    # What waits for more is not left behind when the query ends by itself.
    outside.write_values(topic, [12])
    run(rows, outside, copy, tmp_path)
    assert outside.values(copy) == list(range(13))


def test_a_query_continues_after_the_broker_restarts(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(process=True, settings={"num.partitions": "2"}) as broker:
        outside = Outside(broker.bootstrap_servers)
        topic, copy = outside.create("source"), outside.create("copy")
        outside.write_values(topic, range(10))
        rows = stream(spark, outside, subscribe=topic, **{"kafka.group.id": "restarts"})
        query = to_topic(rows, outside, copy, tmp_path, processingTime="100 milliseconds")
        try:
            eventually(lambda: not query.isActive or outside.values(copy) == list(range(10)))
            broker.kill()
            broker.restart()
            outside.write_values(topic, range(10, 20), partition=1)
            eventually(lambda: not query.isActive or outside.values(copy) == list(range(20)))
            assert query.exception() is None
            eventually(lambda: not query.isActive or sum(outside.group("restarts").values()) == 20)
        finally:
            query.stop()


def test_new_partitions_are_read_while_the_query_runs(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    outside.write_values(topic, [1])
    query = to_topic(
        stream(spark, outside, subscribe=topic), outside, copy, tmp_path, processingTime="200 milliseconds"
    )
    try:
        eventually(lambda: query.exception() is not None or outside.values(copy) == [1])
        outside.grow(topic, 3)
        outside.write_values(topic, [2, 3], partition=2)
        eventually(lambda: query.exception() is not None or outside.values(copy) == [1, 2, 3])
        assert query.exception() is None
    finally:
        query.stop()


def test_retention_that_overtakes_the_reader(spark: SparkSession, outside: Outside, topic: str, tmp_path: Path) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic)
    outside.write_values(topic, range(5))
    run(rows, outside, copy, tmp_path)
    outside.write_values(topic, range(5, 12))
    outside.forget(topic, {0: 9})
    with pytest.raises(PySparkException, match=f"offsets 5 to 8 of {topic}-0 were deleted: the log begins at 9"):
        run(rows, outside, copy, tmp_path)
    run(stream(spark, outside, subscribe=topic, failOnDataLoss="false"), outside, copy, tmp_path)
    assert outside.values(copy) == [*range(5), 9, 10, 11]


def test_a_topic_that_was_deleted_and_created_again(
    spark: SparkSession, outside: Outside, topic: str, tmp_path: Path
) -> None:
    copy = outside.create(f"{topic}-copy")
    rows = stream(spark, outside, subscribe=topic)
    outside.write_values(topic, range(3))
    run(rows, outside, copy, tmp_path)
    outside.recreate(topic)
    outside.write_values(topic, range(10, 15))
    for strict in (rows, stream(spark, outside, subscribe=topic, failOnDataLoss="false", failOnRecreation="true")):
        with pytest.raises(PySparkException, match=f"topic {topic} was deleted and created again"):
            run(strict, outside, copy, tmp_path)
    run(stream(spark, outside, subscribe=topic, failOnDataLoss="false"), outside, copy, tmp_path)
    assert outside.values(copy) == [0, 1, 2, 10, 11, 12, 13, 14]
