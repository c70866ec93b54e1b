"""`pipeline.yml`: what is understood, and one line for everything that is not."""

from typing import Any

import pytest
from tests.unit.pipelines.spec.sample_spec import GOOD, changed

from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.core import spec_reading
from tidemill.pipelines.spec.core.broker import KafkaBroker
from tidemill.pipelines.spec.core.spec import Format, Lost, Otherwise, Spec, Watermark, WrongSpec


def read_spec(file: str, parsed: Any, environment: dict[str, str]) -> Spec:
    return spec_reading.read_spec(file, parsed, environment, sink_types())


def test_a_source_may_limit_its_micro_batches() -> None:
    for given, size in (("64m", 64 * 2**20), (100_000_000, 100_000_000)):
        assert read_spec("x", changed("sources.orders.maxBytesPerTrigger", given), {}).sources[0].max_bytes == size


def test_places_of_lakes_are_local_and_filled_from_the_environment() -> None:
    assert read_spec("x", changed("sinks.files.parquet", "file:///srv/lake"), {}).sinks[1].target == "/srv/lake"
    filled = read_spec("x", changed("sinks.files.parquet", "${LAKE}/orders"), {"LAKE": "/srv"})
    assert filled.sinks[1].target == "/srv/orders"
    with pytest.raises(WrongSpec, match=r"sinks\.files\.parquet is wrong: 's3://b/orders' has the scheme s3:"):
        read_spec("x", changed("sinks.files.parquet", "${LAKE}/orders"), {"LAKE": "s3://b"})


def test_every_part_of_a_spec_is_read() -> None:
    spec = read_spec("shop/pipeline.yml", GOOD, {})
    orders, clicks = spec.sources
    assert (orders.format, orders.start, orders.watermark) == (Format.JSON, "earliest", Watermark("at", "10 seconds"))
    assert (clicks.format, clicks.start, clicks.schema) == (Format.RAW, "latest", None)
    assert [sink.kind for sink in spec.sinks] == list(sink_types())
    assert spec.sinks[1].by == ("item",)
    assert spec.sinks[5].columns == {"id": "item", "due": "at", "body": "item"}
    assert (spec.sinks[6].target, spec.sinks[6].by, spec.sinks[6].columns) == (
        "chdb:lake/shop",
        ("item",),
        {"table": "orders"},
    )
    without_id = read_spec("x", changed("sinks.later.id", None), {}).sinks[5]
    assert without_id.columns == {"due": "at", "body": "item"}
    assert spec.expectations[0].otherwise is Otherwise.DROP
    assert (spec.every, spec.broker) == ("2 seconds", "127.0.0.1:9092")
    assert read_spec("x", changed("schedule", "once"), {}).every is None
    assert read_spec("x", changed("schedule", None), {}).every == "5 seconds"


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("name", None, "p.yml: name is missing"),
        ("name", 7, "p.yml: name is a number, not a text"),
        ("sorces", {}, "p.yml: sorces is not known; did you mean sources?"),
        ("sources", {}, "p.yml: sources is missing: name at least one topic to read"),
        ("sources", [], "p.yml: sources is a list, not a mapping of names to values"),
        ("sources.orders.formt", "json", "p.yml: sources.orders.formt is not known; did you mean format?"),
        ("sources.orders.format", "jsn", "p.yml: sources.orders.format is 'jsn'; did you mean json?"),
        ("sources.orders.schema", None, "p.yml: sources.orders.schema is missing"),
        (
            "sources.clicks.schema",
            "a int",
            "p.yml: sources.clicks.schema is for format json; raw rows have the columns of the topic",
        ),
        ("sources.orders.topic", "a/b", "p.yml: sources.orders.topic is 'a/b': "),
        ("sources.or-ders", {}, "p.yml: sources.or-ders is not a name: use letters, digits and _"),
        ("sources.orders.watermark.delay", "10 secs", "p.yml: sources.orders.watermark.delay is '10 secs'; write"),
        ("transformations.revenue.file", "a.txt", "p.yml: transformations.revenue.file is 'a.txt', neither"),
        ("transformations.orders", {"file": "a.sql"}, "p.yml: transformations.orders has the name of a source"),
        ("expectations.known.view", "ordres", "p.yml: expectations.known.view names ordres, which is no source or "),
        ("expectations.known.otherwise", "dorp", "p.yml: expectations.known.otherwise is 'dorp'; did you mean drop?"),
        ("sinks", None, "p.yml: sinks is missing: name at least one place to write to"),
        (
            "sinks.out.topic",
            None,
            "p.yml: sinks.out needs one of topic, parquet, delta, iceberg, console, timeline, clickhouse; it has none",
        ),
        (
            "sinks.out.parquet",
            "x",
            "p.yml: sinks.out needs one of topic, parquet, delta, iceberg, console, timeline, clickhouse; it has",
        ),
        ("sinks.out.from", "revnue", "p.yml: sinks.out.from names revnue, which is no source or transformation; did"),
        (
            "sinks.out.colour",
            "red",
            (
                "p.yml: sinks.out.colour is not known; there are from, mode, topic, parquet, delta, iceberg, console, "
                "timeline, clickhouse, key, by, id, due, body, table"
            ),
        ),
        ("sinks.out.mode", "complete", "p.yml: sinks.out.mode is 'complete'; there are append, update"),
        ("sinks.screen.mode", "all", "p.yml: sinks.screen.mode is 'all'; there are append, update, complete"),
        ("sinks.out.by", "item", "p.yml: sinks.out.by is not for a sink of kind topic"),
        ("sinks.files.mode", "update", "p.yml: sinks.files.mode is 'update'; there are append"),
        ("sinks.files.by", 7, "p.yml: sinks.files.by is not a column or a list of columns"),
        ("sinks.screen.console", False, "p.yml: sinks.screen.console can only be true"),
        ("sinks.later.due", None, "p.yml: sinks.later.due is missing"),
        ("sinks.table.clickhouse", "db:9000", "p.yml: sinks.table.clickhouse is wrong: 'db:9000' is neither http"),
        (
            "sources.orders.maxBytesPerTrigger",
            "512x",
            "p.yml: sources.orders.maxBytesPerTrigger is wrong: it: '512x' is",
        ),
        ("sources.orders.maxBytesPerTrigger", True, "p.yml: sources.orders.maxBytesPerTrigger is wrong: it: 'True' is"),
        ("sinks.table.table", None, "p.yml: sinks.table.table is missing"),
        (
            "sinks.files.parquet",
            "s3://b/x",
            "p.yml: sinks.files.parquet is wrong: 's3://b/x' has the scheme s3:, which",
        ),
        ("sinks.delta.delta", "HDFS:/x", "p.yml: sinks.delta.delta is wrong: 'HDFS:/x' has the scheme hdfs:, which is"),
        ("sinks.iceberg.iceberg", "~/x", "p.yml: sinks.iceberg.iceberg is wrong: '~/x' has a ~ that was not expanded"),
        (
            "sinks.files.parquet",
            "${NO}/x",
            "p.yml: sinks.files.parquet names ${NO}, which is not set in the environment",
        ),
        ("sinks.files.parquet", 7, "p.yml: sinks.files.parquet is a number, not a text"),
        ("sinks.table.clickhouse", "chdb:gs://b/x", "p.yml: sinks.table.clickhouse is wrong: chdb: 'gs://b/x' has the"),
        (
            "sinks.out.topic",
            "orders",
            "p.yml: sinks.out.topic is orders, which source orders reads: it would never end",
        ),
        (
            "sinks.more",
            {"from": "orders", "parquet": "lake/orders"},
            "p.yml: sinks.more.parquet is lake/orders, where sink files writes already",
        ),
        (
            "sinks.more",
            {"from": "orders", "delta": "./lake//orders/"},
            "p.yml: sinks.more.delta is ./lake//orders/, where sink files writes already",
        ),
        ("client", ["security"], "p.yml: client is a list, not a mapping of names to values"),
        ("client", {"group.id": "mine"}, "p.yml: client.group.id is made of the names of pipeline and sink"),
        ("client", {"security.protocol": "SECRET"}, "p.yml: client is wrong: security.protocol"),
        (
            "client",
            {"sasl.password": "${NOWHERE}"},
            "p.yml: client.sasl.password names ${NOWHERE}, which is not set in the environment",
        ),
        ("spark", "fast", "p.yml: spark is a text, not a mapping of names to values"),
        (
            "spark",
            {"executor.memory": "2g"},
            "p.yml: spark.executor.memory is not a Spark setting; their names look like",
        ),
        ("spark", {"spark.master": "yarn"}, "p.yml: spark.spark.master is not set like this; give --master"),
        ("spark", {"spark.app.id": None}, "p.yml: spark.spark.app.id is missing"),
        ("schedule", "hourly", "p.yml: schedule is 'hourly'; write once, or for example every 5 seconds"),
        ("schedule", "every blue moon", "p.yml: schedule is 'blue moon'; write for example 10 seconds, 5 minutes"),
    ],
)
def test_wrong_input_gives_an_error_of_one_line(path: str, value: Any, line: str) -> None:
    with pytest.raises(WrongSpec) as caught:
        read_spec("p.yml", changed(path, value), {})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_the_client_gets_what_the_file_and_the_environment_say() -> None:
    reported = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "request.timeout.ms": 5_000}
    secret = {"sasl.username": "ann", "sasl.password": "${SECRET}-${SECRET}"}
    spec = read_spec("x", changed("client", reported | secret), {"SECRET": "s"})
    assert spec.kafka["kafka.sasl.password"] == "s-s"
    assert spec.kafka["kafka.request.timeout.ms"] == "5000"
    assert spec.kafka["kafka.bootstrap.servers"] == spec.broker
    waited = "socket.connection.setup.timeout.ms"
    assert spec.kafka[f"kafka.{waited}"] == "30000"
    assert KafkaBroker(spec.broker, {waited: "5"}).kafka[f"kafka.{waited}"] == "5"


def test_spark_gets_what_the_file_and_the_environment_say() -> None:
    reported = {
        "spark.executor.instances": 2,
        "spark.ui.enabled": False,
        "spark.memory.fraction": 0.5,
        "spark.a": "${SIZE}g",
    }
    assert read_spec("x", changed("spark", reported), {"SIZE": "2"}).spark == {
        "spark.executor.instances": "2",
        "spark.ui.enabled": "false",
        "spark.memory.fraction": "0.5",
        "spark.a": "2g",
    }


def test_a_source_fails_or_skips_lost_records() -> None:
    assert read_spec("x", GOOD, {}).sources[0].lost is Lost.FAIL
    assert read_spec("x", changed("sources.orders.lost", "skip"), {}).sources[0].lost is Lost.SKIP
    with pytest.raises(WrongSpec, match=r"sources\.orders\.lost is 'skp'; did you mean skip\?"):
        read_spec("x", changed("sources.orders.lost", "skp"), {})
