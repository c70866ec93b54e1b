"""The dashboards and rules fit a real broker: names, labels, and what Prometheus makes of them."""

import importlib.util
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import Metric, parser
from prometheus_client.openmetrics import parser as openmetrics
from tests.support.cluster_processes import running_brokers
from tests.support.doc_pages import ROOT
from tests.support.exposition import TARGET_LABELS, exposition_of
from tests.support.pipeline_reports import has_sent, pipeline_report
from tests.support.prometheus import check_rule_tests, promtool, running_prometheus
from tests.support.share_members import share_member
from tests.support.waiting import eventually

from tidemill import Message, Timeline, TimelineError
from tidemill.cli.dashboards import files
from tidemill.cli.monitoring.boards import BOARDS
from tidemill.cli.monitoring.grafana import Board, queries_of
from tidemill.cli.monitoring.prometheus_files import RULES_FILE
from tidemill.cli.monitoring.rules import ALERTS, RECORDINGS
from tidemill.client.kafka import KafkaClient
from tidemill.client.parallel.stats import Stats, StatsCollector
from tidemill.testing import Broker

TOPIC, GROUP, SHARE_GROUP, TIMELINE = "orders", "mailer", "packers", "reminders"
NAME = re.compile(r"\b(?:tidemill|process)_\w+")
SELECTION = re.compile(r"\b((?:tidemill|process)_\w+)\{([^}]*)\}")
LABEL_NAME = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\b(?:by|without) \(([^)]*)\)")
ALWAYS = ("up",)
SELDOM = {
    "tidemill_certificate_expiry_timestamp_seconds",
    "tidemill_job_failures_total",
    "tidemill_storage_query_errors_total",
    "tidemill_throttled_responses_total",
    "tidemill_timeline_journal_append_failures_total",
    "tidemill_unclean_elections_total",
}
"""Metrics that a healthy broker does not show. They are looked up in the source instead."""
Exposition = Mapping[str, frozenset[str]]


def use(bootstrap: str, grpc: str) -> None:
    """A topic, a request that fails, a group that lags, a timeline with a dead letter, a pipeline."""
    client = {"bootstrap.servers": bootstrap}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(30)
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(30)
    scheduled = NewTopic("later", 1, config={"tidemill.schedule.enable": "true", "max.message.bytes": "1000"})
    admin.create_topics([scheduled])["later"].result(30)
    producer = Producer(client)
    for number in range(20):
        producer.produce(TOPIC, str(number).encode())
    producer.produce("later", b"v", headers=[("tidemill-delay-ms", b"3600000")])
    producer.flush(30)
    producer.produce("later", bytes(5_000))  # is rejected
    producer.flush(30)
    reader = Consumer({**client, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    reader.subscribe([TOPIC])
    for record in reader.consume(5, 30):
        reader.commit(record, asynchronous=False)
    with Timeline(grpc, TIMELINE) as timeline:
        timeline.create(max_attempts=1, dead_letter="topic:dead")
        timeline.schedule([Message(b"tea", time.time()), Message(b"coffee", time.time())])
        for lease in timeline.work(idle_ms=10_000):
            lease.release()
            break
        with pytest.raises(TimelineError):  # a rejected operation
            timeline.cancel(["missing"])
    reader.close()
    with KafkaClient(client) as sender:
        eventually(lambda: has_sent(sender, pipeline_report()), "the topic of the reports is created")


class Scraped(NamedTuple):
    """The metrics of a cluster in use: the labels of each one, and the addresses where they are."""

    exposition: Exposition
    addresses: Sequence[str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Scraped]:
    """The metrics of two brokers, because one broker alone has no replicas."""
    with ExitStack() as opened:
        brokers = opened.enter_context(running_brokers(2, racks=False, grpc="127.0.0.1:0", http="127.0.0.1:0"))
        servers = brokers.servers[1]
        use(brokers.bootstrap, str(servers["grpc"]))
        opened.enter_context(share_member(brokers.bootstrap, SHARE_GROUP, TOPIC, 1))
        addresses = [str(each["http"]) for each in brokers.servers.values()]
        # Both are counted again only some seconds after the scrape before.
        counted = {"tidemill_group_lag_seconds", "tidemill_scheduled_records_waiting"}
        eventually(lambda: counted <= exposition_of(addresses).keys(), "lag and waiting records are not counted")
        yield Scraped(exposition_of(addresses), addresses)


@pytest.fixture(scope="module")
def exposition(cluster: Scraped) -> Exposition:
    """The metrics of the brokers, of a parallel consumer, and those that appear only when something is wrong."""
    return {**seldom_metrics(), **parallel_metrics(), **cluster.exposition}


@pytest.mark.parametrize("query", ["", "?detail=partition"])
def test_promtool_finds_nothing_wrong_in_the_exposition(cluster: Scraped, query: str) -> None:
    for address in cluster.addresses:
        text = httpx.get(f"http://{address}/metrics{query}", timeout=30).text
        assert promtool("check", "metrics", text=text) == ""


def test_openmetrics_has_the_same_series(cluster: Scraped) -> None:
    url = f"http://{cluster.addresses[0]}/metrics?detail=partition"
    plain = httpx.get(url, timeout=30)
    negotiated = httpx.get(url, headers={"accept": OPENMETRICS}, timeout=30)
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert negotiated.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert series_of(openmetrics.text_string_to_metric_families(negotiated.text)) >= series_of(
        parser.text_string_to_metric_families(plain.text)
    )


OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def series_of(families: Iterable[Metric]) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {(sample.name, frozenset(sample.labels.items())) for family in families for sample in family.samples}


def parallel_metrics() -> Exposition:
    collector = StatsCollector()
    empty = dict.fromkeys(Stats.__dataclass_fields__, 0)
    collector.add("group", lambda: Stats(**{**empty, "committed": {}, "contiguous": {}, "assigned": ()}))  # type: ignore[arg-type]
    return {sample.name: frozenset(sample.labels) for family in collector.collect() for sample in family.samples}


def seldom_metrics() -> Exposition:
    path = ROOT / "docs" / "reference" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_metrics", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {each.name: frozenset(each.labels) | {"cluster"} for each in module.broker_metrics(module.SOURCE)}
    return {name: found[name] for name in SELDOM}


def every_expression() -> Iterator[tuple[str, str]]:
    """Each expression with the place that it is in."""
    for board in BOARDS:
        for expr in queries_of(board):
            yield board.name, expr
        for variable in board.variables:
            yield board.name, variable.values
    for rule in RECORDINGS:
        yield rule.record, rule.expr
    for alert in ALERTS:
        yield alert.name, alert.expr


def unknown_parts(expr: str, exposition: Exposition) -> list[str]:
    """Metrics and labels of an expression that the exposition does not have."""
    named = NAME.findall(expr)
    unknown = [name for name in named if name not in exposition]
    for name, selection in SELECTION.findall(expr):
        known = exposition.get(name, frozenset()) | TARGET_LABELS
        unknown += [f"{name}{{{label}}}" for label in LABEL_NAME.findall(selection) if label not in known]
    of_all = frozenset().union(*(exposition.get(name, frozenset()) for name in named)) | TARGET_LABELS
    groups = [label.strip() for found in GROUPING.findall(expr) for label in found.split(",")]
    return unknown + [f"by {label}" for label in groups if named and label not in of_all]


def test_every_name_and_label_is_in_the_exposition(exposition: Exposition) -> None:
    wrong = {f"{place}: {part}" for place, expr in every_expression() for part in unknown_parts(expr, exposition)}
    assert not wrong, "\n".join(sorted(wrong))


def test_the_comparison_finds_wrong_names(exposition: Exposition) -> None:
    assert unknown_parts("rate(tidemill_nothing_total[5m])", exposition) == ["tidemill_nothing_total"]
    assert unknown_parts('tidemill_partitions{group="x"}', exposition) == ["tidemill_partitions{group}"]
    assert unknown_parts("sum by (le, api) (tidemill_partitions)", exposition) == ["by le", "by api"]


def test_metrics_that_appear_seldom_are_still_needed() -> None:
    used = {name for _, expr in every_expression() for name in NAME.findall(expr)}
    assert used >= SELDOM


def test_recorded_series_are_those_that_rules_use() -> None:
    used = {name for alert in ALERTS for name in re.findall(r"\btidemill:\w+:\w+", alert.expr)}
    assert used <= {each.record for each in RECORDINGS}


def test_the_guide_lists_every_alert() -> None:
    guide = (ROOT / "docs" / "guides" / "monitoring.md").read_text()
    assert set(re.findall(r"`(Tidemill[A-Z]\w+)`", guide)) == {each.name for each in ALERTS}


def test_commands_in_next_steps_exist() -> None:
    known = re.findall(r"^#+ `(tidemill [\w -]+)`", (ROOT / "docs/reference/cli.md").read_text(), re.MULTILINE)
    named = [found for alert in ALERTS for found in re.findall(r"tidemill [a-z]+(?: [a-z]+)?", alert.next_step)]
    assert named
    assert [each for each in named if each not in known and each.rsplit(" ", 1)[0] not in known] == []


class Case(NamedTuple):
    """Series that make an alert fire, and series that do not. Values are in promtool's notation, one per minute."""

    firing: Mapping[str, str]
    quiet: Mapping[str, str]


def gauge(name: str, firing: str, quiet: str = "0x40", labels: str = "") -> Case:
    series = f'{name}{{cluster="c",instance="b:1"{labels}}}'
    return Case({series: firing}, {series: quiet})


def histogram(name: str, bounds: Sequence[str], labels: str = "") -> Case:
    """Values above the second bound, or below the first."""

    def series(shares: Sequence[int]) -> dict[str, str]:
        return {
            f'{name}_bucket{{cluster="c",instance="b:1"{labels},le="{bound}"}}': f"0+{share}x40"
            for bound, share in zip((*bounds, "+Inf"), shares, strict=True)
        }

    return Case(series((0, 0, 600)), series((600, 600, 600)))


def disk(firing: int, quiet: int) -> Case:
    """Percents of free space."""
    free, size = (f'tidemill_disk_{part}_bytes{{cluster="c",instance="b:1"}}' for part in ("free", "size"))
    return Case({free: f"{firing}x40", size: "100x40"}, {free: f"{quiet}x40", size: "100x40"})


REQUESTS = 'tidemill_requests_total{cluster="c",instance="b:1",server="kafka",api="Produce"}'
ERRORS = 'tidemill_request_errors_total{cluster="c",instance="b:1",server="kafka",api="Produce",error="E"}'
LAG = 'tidemill_group_lag_{}{{cluster="c",instance="b:1",group="g",topic="t"}}'
LEDGER_LAG = LAG.replace('"g"', '"tidemill-query"')
SHARED = 'cluster="c",instance="b:1",group="g"'
SHARE_LAG = f'tidemill_share_lag_records{{{SHARED},topic="t"}}'
MEMBERS = f"tidemill_group_members{{{SHARED}}}"
SHARE_RESULT = f'tidemill_share_delivery_results_total{{{SHARED},topic="t",result="%s"}}'
CASES = {
    "TidemillBrokerDown": Case(
        {'up{job="tidemill",instance="b:1"}': "0x40"}, {'up{job="tidemill",instance="b:1"}': "1x40"}
    ),
    "TidemillOfflinePartitions": gauge("tidemill_offline_partitions", "2x40"),
    "TidemillNoController": gauge("tidemill_controller", "0x40", "1x40"),
    "TidemillMultipleControllers": gauge("tidemill_controller", "2x40", "1x40"),
    "TidemillPartitionsFailed": gauge("tidemill_partitions_failed", "1x40"),
    "TidemillUnderMinIsr": gauge("tidemill_under_min_isr_partitions", "1x40"),
    "TidemillUnderReplicatedPartitions": gauge("tidemill_under_replicated_partitions", "3x40"),
    "TidemillUncleanElection": gauge("tidemill_unclean_elections_total", "0x20 1x20"),
    "TidemillDiskNearlyFull": disk(14, 16),
    "TidemillDiskFull": disk(4, 14),
    "TidemillStorageErrors": gauge(
        "tidemill_storage_query_errors_total", "0+60x40", "5x40", ',store="s",op="o",type="t",filter="f",reason="r"'
    ),
    "TidemillCertificateExpires": gauge(
        "tidemill_certificate_expiry_timestamp_seconds", "1000000x200", "1300000x200", ',server="GRPC"'
    ),
    "TidemillFsyncSlow": histogram("tidemill_fsync_duration_seconds", ("0.1", "1.0")),
    "TidemillEventLoopDelayed": histogram("tidemill_event_loop_delay_seconds", ("0.1", "0.5")),
    "TidemillPeersMissing": gauge("tidemill_degraded", "1x40", "0x40", ',reason="peers_missing"'),
    "TidemillBrokerOverloaded": gauge("tidemill_broker_load_level", "1x40", "0x40", ',level="overloaded"'),
    "TidemillRequestErrors": Case(
        {REQUESTS: "0+600x40", ERRORS: "0+60x40"},
        {REQUESTS: "0+600x40", ERRORS: "0+6x40"},
    ),
    "TidemillGroupLagGrowing": Case(
        {LAG.format("records"): "1000+50x40", LAG.format("seconds"): "400+10x40"},
        {LAG.format("records"): "4000-50x40", LAG.format("seconds"): "400-10x40"},
    ),
    "TidemillGroupStuck": Case(
        {LAG.format("records"): "7x40", LAG.format("seconds"): "60+60x40"},
        {
            LAG.format("records"): "7x40",
            LAG.format("seconds"): "60x40",
            LEDGER_LAG.format("records"): "7x40",
            LEDGER_LAG.format("seconds"): "60+60x40",
        },
    ),
    "TidemillShareGroupWithoutMembers": Case(
        {SHARE_LAG: "7x40", MEMBERS: "0x40"}, {SHARE_LAG: "7x40", MEMBERS: "1x40"}
    ),
    "TidemillShareLocksExpire": Case(
        {SHARE_RESULT % "expired": "0+1x40", SHARE_RESULT % "accepted": "9x40"},
        {SHARE_RESULT % "expired": "0+1x40", SHARE_RESULT % "accepted": "0+1x40"},
    ),
    "TidemillTimelineLate": histogram("tidemill_timeline_lateness_seconds", ("0.5", "5.0"), ',timeline="t"'),
    "TidemillTimelinesDegraded": gauge("tidemill_timelines_state", "1x40", "0x40", ',state="degraded"'),
    "TidemillDeadLetters": gauge("tidemill_timeline_messages_total", "0+1x40", "5x40", ',timeline="t",op="dead"'),
    "TidemillTimelineIndexBehind": gauge("tidemill_timeline_index_lag_entries", "2000x40", "10x40", ',partition="0"'),
    "TidemillPipelineStopped": gauge("tidemill_pipeline_state", "1x40", "0x40", ',pipeline="p",state="stale"'),
    "TidemillPipelineQueryFailed": gauge("tidemill_pipeline_query_failed", "1x40", "0x40", ',pipeline="p",query="q"'),
    "TidemillPipelineLagGrowing": gauge(
        "tidemill_pipeline_lag_records", "100+50x40", "4000-50x40", ',pipeline="p",query="q"'
    ),
    "TidemillTasksFailing": gauge("tidemill_task_restarts_total", "0+1x40", "1x40", ',task="t"'),
    "TidemillClockInDoubt": gauge("tidemill_clock_in_doubt", "1x40", "0x40", ',reason="jump"'),
    "TidemillOpenFilesHigh": Case(
        {
            'process_open_fds{job="tidemill",instance="b:1"}': "900x40",
            'process_max_fds{job="tidemill",instance="b:1"}': "1000x40",
        },
        {
            'process_open_fds{job="tidemill",instance="b:1"}': "90x40",
            'process_max_fds{job="tidemill",instance="b:1"}': "1000x40",
        },
    ),
}
AT = "36m"
AT_LATER = {"TidemillCertificateExpires": "100m"}
"""Where 36 minutes are not enough."""


def test_every_alert_has_a_case_with_real_series(exposition: Exposition) -> None:
    assert list(CASES) == [each.name for each in ALERTS]
    series = {each for case in CASES.values() for each in (*case.firing, *case.quiet)}
    wrong = [unknown_parts(each, exposition) for each in series if not each.startswith(ALWAYS)]
    assert [each for each in wrong if each] == []


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    for name, text in files(["127.0.0.1:8080"]).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / RULES_FILE


def test_promtool_accepts_the_files(rules: Path) -> None:
    assert f"{len(ALERTS) + len(RECORDINGS)} rules found" in promtool("check", "rules", str(rules))
    assert "is valid prometheus config" in promtool("check", "config", str(rules.with_name("prometheus.yml")))


def test_every_alert_fires_and_is_quiet(rules: Path, tmp_path: Path) -> None:
    tests = []
    for name, case in CASES.items():
        count = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
        for series, expected in ((case.firing, 1), (case.quiet, 0)):
            tests.append(
                {
                    "name": f"{name} {expected}",
                    "interval": "1m",
                    "input_series": [{"series": each, "values": values} for each, values in series.items()],
                    "promql_expr_test": [
                        {
                            "expr": count,
                            "eval_time": AT_LATER.get(name, AT),
                            "exp_samples": [{"labels": "{}", "value": expected}],
                        }
                    ],
                }
            )
    check_rule_tests(rules, tests, tmp_path)


def test_the_text_of_an_alert_names_the_group(rules: Path, tmp_path: Path) -> None:
    firing = CASES["TidemillGroupStuck"].firing
    expected = {
        "exp_labels": {"severity": "warning", "cluster": "c", "group": "g", "topic": "t"},
        "exp_annotations": {
            "summary": "Group g is stuck on t",
            "description": next(each.description for each in ALERTS if each.name == "TidemillGroupStuck"),
            "next_step": "tidemill group describe g shows its members; a record may fail again and again.",
        },
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in firing.items()],
        "alert_rule_test": [{"eval_time": AT, "alertname": "TidemillGroupStuck", "exp_alerts": [expected]}],
    }
    check_rule_tests(rules, [test], tmp_path)


def chosen(expr: str, board: Board) -> str:
    """The expression of a panel with all values of its variables, as Grafana sends it."""
    for variable in board.variables:
        expr = expr.replace(f"${variable.name}", ".*")
    return expr.replace("$__rate_interval", "1m")


def test_every_panel_is_promql(tmp_path: Path) -> None:
    expressions = [chosen(expr, board) for board in BOARDS for expr in queries_of(board)]
    rules = [{"record": f"panel_{number}", "expr": expr} for number, expr in enumerate(expressions)]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def values_of(board: Board, query: Callable[[str], list[dict[str, Any]]]) -> int:
    """How many panels of a dashboard show something."""
    return sum(bool(query(chosen(expr, board))) for expr in queries_of(board))


def test_a_real_prometheus_scrapes_a_broker(tmp_path: Path) -> None:
    with ExitStack() as opened:
        broker = opened.enter_context(Broker())
        use(broker.bootstrap_servers, broker.grpc)
        opened.enter_context(share_member(broker.bootstrap_servers, SHARE_GROUP, TOPIC, 1))
        for name, text in files([broker.http.removeprefix("http://")]).items():
            (tmp_path / name).write_text(text.replace("interval: 15s", "interval: 1s"))
        server = opened.enter_context(running_prometheus(tmp_path / "prometheus.yml", tmp_path / "data"))
        lag = eventually(lambda: server.query("tidemill:group_lag_records:sum"), "no rule has a value")
        assert [(each["metric"]["group"], each["metric"]["topic"]) for each in lag] == [(GROUP, TOPIC)]
        assert 0 < float(lag[0]["value"][1]) < 20
        wanted = {"cluster": 15, "topic": 5, "groups": 5, "shares": 7, "timelines": 5, "pipelines": 12}
        eventually(
            lambda: all(values_of(board, server.query) >= wanted.get(board.name, 0) for board in BOARDS),
            "panels without values",
        )
        groups = server.get("rules")["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
        assert [each["labels"]["job"] for each in server.get("targets")["activeTargets"]] == ["tidemill"]
        assert [each["value"][1] for each in server.query("sum(tidemill_controller)")] == ["1"]
