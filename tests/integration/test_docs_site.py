"""The documentation site builds without a warning, and its generated pages are complete."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.support.doc_pages import ROOT

import tidemill
from tidemill.model.metric_labels import USED_NAMES
from tidemill.testing import Broker

BUILD_S = 150


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a broken link is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_has_a_search_index_of_all_sections(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    sections = {entry["location"].split("/")[0] for entry in index["docs"]}
    assert {"start", "guides", "concepts", "reference", "decisions"} <= sections


def test_the_python_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    names = [f"tidemill.{name}" for name in tidemill.__all__ if name != "__version__"]
    assert [name for name in names if f'id="{name}"' not in page] == []
    assert 'id="tidemill.Timeline.schedule"' in page
    assert 'id="tidemill.testing.Broker.kill"' in page


def test_every_decision_is_in_the_table() -> None:
    folder = ROOT / "docs" / "decisions"
    table = (folder / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in folder.glob("0*.md") if f"({page.name})" not in table] == []


def test_every_metric_of_a_running_broker_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| [-\w]+ \| (.*) \|$", page, re.MULTILINE)
    listed = {name: (kind, set(re.findall(r"`(\w+)`", labels)), doc) for name, kind, labels, doc in rows}
    with Broker() as broker, tidemill.Timeline(broker.grpc, "metered") as timeline:
        timeline.create()
        use_streams(broker)
        with urllib.request.urlopen(f"{broker.http}/metrics?detail=partition", timeout=30) as answer:
            text = answer.read().decode()
    found = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"cluster", "le"},
            family.documentation,
        )
        for family in text_string_to_metric_families(text)
        if family.name.startswith("tidemill_")
    }
    assert len(found) > 40
    assert {name: listed.get(name) for name in found} == found


def use_streams(broker: Broker) -> None:
    """Cause what has metrics: records, commits, and errors."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    admin, producer = AdminClient(client), Producer(client)
    for _ in range(2):
        with suppress(KafkaException):
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    producer.produce("orders", b"v")
    assert producer.flush(30) == 0
    reader = Consumer({**client, "group.id": "mailer", "auto.offset.reset": "earliest"})
    reader.subscribe(["orders"])
    assert reader.poll(30) is not None
    reader.commit(asynchronous=False)
    reader.close()


def test_labels_of_metrics_cannot_be_given_in_the_settings() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8").partition("## Parallel")[0]
    cells = re.findall(r"^\| `tidemill_\w+` \| \w+ \| (.*?) \|", page, re.MULTILINE)
    labels = {label for cell in cells for label in re.findall(r"`(\w+)`", cell)}
    assert labels - USED_NAMES == set(), "add them to USED_NAMES in model/metric_labels.py"
