"""The graph of datasets: every name is text, links lead to pages, and the edges are there in words."""

from xml.etree import ElementTree as ET

from tidemill.servers.http.console.dataset_graph import dataset_graph, edges_in_words
from tidemill.wire.http.pipelines import PipelineDataset


def dataset(kind: str, name: str, *reads: int, detail: str = "") -> PipelineDataset:
    return PipelineDataset(kind=kind, name=name, detail=detail, reads=list(reads))


def parsed(drawing: str) -> ET.Element:
    return ET.fromstring(drawing)  # noqa: S314 - a drawing of our own


SHOP = [
    dataset("topic", "orders", detail="json"),
    dataset("transformation", "totals", 0, detail="totals.sql"),
    dataset("topic", "revenue", 1, detail="update"),
    dataset("lake", "lake/orders", 0),
    dataset("topic", "unused"),
]


def test_edges_are_there_in_words() -> None:
    assert edges_in_words(SHOP) == [
        "transformation totals reads topic orders",
        "topic revenue reads transformation totals",
        "lake lake/orders reads topic orders",
        "not connected: topic unused",
    ]


def test_the_drawing_has_a_box_for_each_dataset_and_a_line_for_each_edge() -> None:
    drawn = parsed(dataset_graph("Datasets", SHOP, ["/topics/orders", "", "/topics/revenue", "", ""]))
    classes = [each.get("class", "") for each in drawn.iter()]
    assert sum(each.startswith("box ") for each in classes) == 5
    assert classes.count("edge") == 3
    assert [each.get("href") for each in drawn.iter("a")] == ["/topics/orders", "/topics/revenue"]
    described = drawn.find("desc")
    assert described is not None
    assert "topic revenue reads transformation totals" in str(described.text)


def test_names_are_text_and_are_cut() -> None:
    hostile = '"><script>alert(1)</script>' + "x" * 100
    text = str(dataset_graph(hostile, [dataset("made-up", hostile, detail=hostile)], ['/topics/"><script>']))
    assert "<script" not in text
    assert "…" in text
    drawn = parsed(text)
    assert drawn.get("aria-label") == hostile
    assert [each.text for each in drawn.iter("title")] == [f"{hostile} (Sink, {hostile})"]
