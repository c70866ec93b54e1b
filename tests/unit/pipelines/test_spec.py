"""`pipeline.yml`: what is understood, and one line for everything that is not."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.core import spec_reading
from tidemill.pipelines.spec.core.broker import KafkaBroker
from tidemill.pipelines.spec.core.graph import check_query, in_order, parameters, views_in_sql
from tidemill.pipelines.spec.core.spec import Format, Lost, Otherwise, Spec, Watermark, WrongSpec
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.folder import pipelines_in
from tidemill.pipelines.spec.loading import load

GOOD: dict[str, Any] = {
    "name": "shop",
    "sources": {
        "orders": {
            "topic": "orders",
            "schema": "item string, at timestamp",
            "watermark": {"column": "at", "delay": "10 seconds"},
        },
        "clicks": {"topic": "clicks", "format": "raw", "start": "latest"},
    },
    "transformations": {"revenue": {"file": "transformations/revenue.sql"}},
    "expectations": {"known": {"view": "orders", "expect": "item is not null", "otherwise": "drop"}},
    "sinks": {
        "out": {"from": "revenue", "topic": "revenue", "key": "item", "mode": "update"},
        "files": {"from": "orders", "parquet": "lake/orders", "by": "item"},
        "delta": {"from": "orders", "delta": "lake/delta"},
        "iceberg": {"from": "orders", "iceberg": "lake/iceberg", "by": ["item"]},
        "screen": {"from": "orders", "console": True},
        "later": {"from": "orders", "timeline": "reminders", "id": "item", "due": "at", "body": "item"},
        "table": {"from": "orders", "clickhouse": "chdb:lake/shop", "table": "orders", "by": ["item"]},
    },
    "schedule": "every 2 seconds",
}


def read_spec(file: str, parsed: Any, environment: dict[str, str]) -> Spec:
    return spec_reading.read_spec(file, parsed, environment, sink_types())


def changed(path: str, value: Any) -> dict[str, Any]:
    """The good one with one thing changed; None takes it out."""
    spec = deepcopy(GOOD)
    *parents, last = path.split(".")
    at = spec
    for name in parents:
        at = at[name]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return spec


def test_a_source_may_limit_its_micro_batches() -> None:
    for given, size in (("64m", 64 * 2**20), (100_000_000, 100_000_000)):
        assert read_spec("x", changed("sources.orders.maxBytesPerTrigger", given), {}).sources[0].max_bytes == size


def test_places_of_lakes_are_local_and_filled_from_the_environment() -> None:
    assert read_spec("x", changed("sinks.files.parquet", "file:///srv/lake"), {}).sinks[1].target == "/srv/lake"
    filled = read_spec("x", changed("sinks.files.parquet", "${LAKE}/orders"), {"LAKE": "/srv"})
    assert filled.sinks[1].target == "/srv/orders"
    with pytest.raises(WrongSpec, match=r"sinks\.files\.parquet is wrong: 's3://b/orders' has the scheme s3:"):
        read_spec("x", changed("sinks.files.parquet", "${LAKE}/orders"), {"LAKE": "s3://b"})


def test_everything_is_understood() -> None:
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
def test_what_is_wrong_is_told_in_one_line(path: str, value: Any, line: str) -> None:
    with pytest.raises(WrongSpec) as caught:
        read_spec("p.yml", changed(path, value), {})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_the_client_is_told_what_the_file_and_the_environment_say() -> None:
    told = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "request.timeout.ms": 5_000}
    secret = {"sasl.username": "ann", "sasl.password": "${SECRET}-${SECRET}"}
    spec = read_spec("x", changed("client", told | secret), {"SECRET": "s"})
    assert spec.kafka["kafka.sasl.password"] == "s-s"
    assert spec.kafka["kafka.request.timeout.ms"] == "5000"
    assert spec.kafka["kafka.bootstrap.servers"] == spec.broker
    waited = "socket.connection.setup.timeout.ms"
    assert spec.kafka[f"kafka.{waited}"] == "30000"
    assert KafkaBroker(spec.broker, {waited: "5"}).kafka[f"kafka.{waited}"] == "5"


def test_spark_is_told_what_the_file_and_the_environment_say() -> None:
    told = {
        "spark.executor.instances": 2,
        "spark.ui.enabled": False,
        "spark.memory.fraction": 0.5,
        "spark.a": "${SIZE}g",
    }
    assert read_spec("x", changed("spark", told), {"SIZE": "2"}).spark == {
        "spark.executor.instances": "2",
        "spark.ui.enabled": "false",
        "spark.memory.fraction": "0.5",
        "spark.a": "2g",
    }


def test_what_a_source_does_about_records_that_are_gone() -> None:
    assert read_spec("x", GOOD, {}).sources[0].lost is Lost.FAIL
    assert read_spec("x", changed("sources.orders.lost", "skip"), {}).sources[0].lost is Lost.SKIP
    with pytest.raises(WrongSpec, match=r"sources\.orders\.lost is 'skp'; did you mean skip\?"):
        read_spec("x", changed("sources.orders.lost", "skp"), {})


def test_views_are_found_in_sql_but_not_in_texts_and_comments() -> None:
    text = "select * from Orders join x.clicks -- revenue\n where a = 'it''s paid' /* lost\nlost */"
    assert views_in_sql(text, ["orders", "clicks", "revenue", "paid", "lost"]) == {"orders", "clicks"}


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "-- drop table a\n (select 1)",
        "WITH a AS (select 1) SELECT * FROM a",
        "from orders select item",
        "select 'insert into' as told from orders",
    ],
)
def test_a_query_is_a_transformation(text: str) -> None:
    check_query("a.sql", text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("drop table orders", "a.sql: DROP is not allowed; a transformation is one query: SELECT or WITH"),
        ("/* x */ Create table t as select 1", "a.sql: CREATE is not allowed"),
        ("insert into t select 1", "a.sql: INSERT is not allowed"),
        ("with a as (select 1) insert overwrite t select * from a", "a.sql: INSERT is not allowed"),
        ("set spark.x = 1", "a.sql: SET is not allowed"),
        (" -- nothing\n", "a.sql contains no query"),
    ],
)
def test_what_spark_would_do_at_once_is_refused(text: str, line: str) -> None:
    with pytest.raises(WrongSpec) as caught:
        check_query("a.sql", text)
    assert str(caught.value).startswith(line)


def test_transformations_come_after_what_they_read_and_not_in_circles() -> None:
    assert in_order("p.yml", {"c": ["b", "orders"], "b": ["a"], "a": ["orders"]}) == ["a", "b", "c"]
    with pytest.raises(WrongSpec, match=r"p.yml: transformations read each other: "):
        in_order("p.yml", {"a": ["b"], "b": ["a"]})


def test_a_column_with_the_name_of_a_view_makes_no_circle(tmp_path: Path) -> None:
    files = {
        "a": "select x.total, 1 as b from orders x, clicks as y where b > 0",
        "b": "select * from (select * from a) z join clicks on z.k = clicks.k",
    }
    spec = deepcopy(GOOD) | {"transformations": {name: {"file": f"{name}.sql"} for name in files}}
    spec["sinks"]["out"]["from"] = "b"
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    assert [step.transformation.name for step in load(tmp_path, sink_types()).steps] == ["a", "b"]
    (tmp_path / "a.sql").write_text("select * from b", encoding="utf-8")
    with pytest.raises(WrongSpec, match="transformations read each other: "):
        load(tmp_path, sink_types())


def test_the_parameters_of_a_function_are_its_views() -> None:
    assert parameters("a.py", "def a(orders, clicks): ...", "a") == ("orders", "clicks")
    with pytest.raises(WrongSpec, match=r"a\.py: function b is missing"):
        parameters("a.py", "def a(orders): ...", "b")
    with pytest.raises(WrongSpec, match=r"a\.py: line 1 is not Python"):
        parameters("a.py", "def a(:", "a")


def test_the_example_is_right_and_is_found(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1234")
    folder = load(tmp_path / "shop", sink_types())
    assert folder.spec.broker == "127.0.0.1:1234"
    assert [(step.transformation.name, step.reads) for step in folder.steps] == [
        ("priced", ("orders",)),
        ("revenue", ("priced",)),
    ]
    assert pipelines_in(tmp_path) == pipelines_in(tmp_path / "shop") == [tmp_path / "shop"]
    with pytest.raises(PipelineError, match="is not empty"):
        write_example(tmp_path / "shop", "127.0.0.1:1234")


def test_files_that_are_missing_or_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(WrongSpec, match="create a pipeline with: tidemill pipeline init"):
        load(tmp_path, sink_types())
    (tmp_path / "pipeline.yml").write_text("a: [", encoding="utf-8")
    with pytest.raises(WrongSpec, match="is not valid YAML"):
        load(tmp_path, sink_types())
    (tmp_path / "pipeline.yml").write_text("sinks:\n  out: {}\n  more: {}\n  out: {}\n", encoding="utf-8")
    with pytest.raises(WrongSpec, match=r"the key out occurs twice .* line 4, column 3"):
        load(tmp_path, sink_types())
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(GOOD), encoding="utf-8")
    with pytest.raises(WrongSpec, match=r"transformations\.revenue\.file: .* does not exist"):
        load(tmp_path, sink_types())
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "revenue.sql").write_bytes(b"SELECT '\xf6'")
    with pytest.raises(WrongSpec, match=r"revenue\.sql is not UTF-8 text"):
        load(tmp_path, sink_types())
    (tmp_path / "transformations" / "revenue.py").write_text("def revenue(ordes): ...", encoding="utf-8")
    python = changed("transformations.revenue.file", "transformations/revenue.py")
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(python), encoding="utf-8")
    with pytest.raises(WrongSpec, match=r"revenue\(ordes\): view ordes does not exist; there are clicks, orders"):
        load(tmp_path, sink_types())
