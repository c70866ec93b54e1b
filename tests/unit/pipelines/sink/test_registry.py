"""The registry of sink types: one module adds a sink, and reading a spec needs neither Spark nor Arrow."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Any, cast

import pytest

from tidemill.pipelines import sink as package
from tidemill.pipelines.sink.registry import sink_types, writer_of
from tidemill.pipelines.spec.core.spec import Sink, WrongSpec
from tidemill.pipelines.spec.core.spec_reading import read_spec
from tidemill.pipelines.spec.folder import Folder, SinkRun
from tidemill.pipelines.spec.loading import load

WEBHOOK = dedent(
    '''
    """A web hook."""

    from tidemill.pipelines.sink.sink_type import SinkType


    class WebhookSink(SinkType):
        """Sends rows to an address."""

        name = "webhook"
        keys = ("by", "token")
        modes = ("append",)

        def target(self, part, environment):
            """The address."""
            return part.filled(self.name, environment)

        def columns(self, part):
            """The token of the receiver."""
            return {"token": part.text("token")}

        def problem(self, sink, spec):
            """The address must be encrypted."""
            return None if sink.target.startswith("https:") else f"is {sink.target}, which is not encrypted"

        def writer(self, rows, run):
            """The rows and the name, for the test."""
            return rows, run.sink.name
    '''
)


def spec_with(sink: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "shop",
        "sources": {"orders": {"topic": "orders", "format": "raw"}},
        "sinks": {"hook": {"from": "orders", **sink}},
    }


@pytest.fixture
def webhook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more module in the package of sinks, and no other change."""
    (tmp_path / "webhook.py").write_text(WEBHOOK, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    sink_types.cache_clear()
    yield
    sink_types.cache_clear()
    sys.modules.pop(f"{package.__name__}.webhook", None)
    if hasattr(package, "webhook"):
        del package.webhook


def test_the_kinds_are_in_the_order_of_their_ranks() -> None:
    assert list(sink_types()) == ["topic", "parquet", "delta", "iceberg", "console", "timeline", "clickhouse"]
    assert [name for name, each in sink_types().items() if each.is_lake] == ["parquet", "delta", "iceberg"]
    assert [name for name, each in sink_types().items() if each.is_timeline] == ["timeline"]
    assert isinstance(sink_types(), MappingProxyType)


@pytest.mark.usefixtures("webhook")
def test_one_module_adds_a_sink() -> None:
    given = {"webhook": "https://${HOST}/in", "token": "t", "by": "key"}
    [sink] = read_spec("p.yml", spec_with(given), {"HOST": "a.example"}, sink_types()).sinks
    assert sink == Sink(
        "hook", "orders", "webhook", "https://a.example/in", by=("key",), columns={"token": "t"}
    )  # append is the default mode
    assert list(sink_types())[-1] == "webhook"
    rows = cast("Any", object())
    run = SinkRun(cast("Folder", None), sink, print)
    assert cast("Any", writer_of(rows, run)) == (rows, "hook")


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("sink", "line"),
    [
        ({"webhook": "https://a"}, "p.yml: sinks.hook.token is missing"),
        ({"webhook": "http://a", "token": "t"}, "p.yml: sinks.hook.webhook is http://a, which is not encrypted"),
        ({"webhook": "https://a", "mode": "update"}, "p.yml: sinks.hook.mode is 'update'; there are append"),
        ({"webhook": "https://a", "key": "k"}, "p.yml: sinks.hook.key is not for a sink of kind webhook"),
        ({"console": True, "token": "t"}, "p.yml: sinks.hook.token is not for a sink of kind console"),
        ({"webhok": "https://a"}, "p.yml: sinks.hook.webhok is not known; did you mean webhook?"),
        (
            {},
            (
                "p.yml: sinks.hook needs one of topic, parquet, delta, iceberg, console, timeline, clickhouse, "
                "webhook; it has none"
            ),
        ),
    ],
)
def test_errors_of_an_added_sink_are_those_of_all_sinks(sink: dict[str, Any], line: str) -> None:
    with pytest.raises(WrongSpec) as caught:
        read_spec("p.yml", spec_with(sink), {}, sink_types())
    assert str(caught.value) == line


@pytest.mark.usefixtures("webhook")
def test_a_folder_is_loaded_with_an_added_sink(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(
        "name: shop\n"
        "sources: {orders: {topic: orders, format: raw}}\n"
        "sinks: {hook: {from: orders, webhook: 'https://a', token: t}}\n",
        encoding="utf-8",
    )
    assert load(tmp_path, sink_types()).spec.sinks[0].kind == "webhook"


def test_two_types_of_one_name_are_an_error(tmp_path: Path, webhook: None) -> None:
    (tmp_path / "webhook.py").write_text(WEBHOOK.replace('"webhook"', '"topic"'), encoding="utf-8")
    with pytest.raises(TypeError, match="the sink type topic exists already"):
        sink_types()


def test_a_spec_is_read_without_spark_and_arrow() -> None:
    program = """
import sys
from tidemill.pipelines.spec.loading import load
from tidemill.pipelines.sink.registry import sink_types
assert "topic" in sink_types()
print([name for name in ("pyspark", "pyarrow", "pandas") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
