"""Reports of clients are read, and misleading ones are rejected."""

from typing import Any

import msgspec
import pytest
from tests.support.pipeline_reports import pipeline_report, query_report

from tidemill.model.errors import InvalidRecord, MessageTooLarge
from tidemill.pipeline_reports.core.report_reading import read_key, read_report, read_stored
from tidemill.wire.pipeline_report import (
    ERROR_CHARS_MAX,
    QUERIES_MAX,
    REPORT_BYTES_MAX,
    DatasetNode,
    StoredReport,
    encode_report,
)


def test_a_report_is_read_as_it_was_sent() -> None:
    sent = pipeline_report()
    assert read_report(b"shop", encode_report(sent)) == sent


def test_a_name_may_have_any_printable_characters() -> None:
    name = "<b>Tee & Käse/1"
    assert read_report(name.encode(), encode_report(pipeline_report(name))).pipeline == name


def test_fields_of_a_later_version_are_ignored() -> None:
    found = {**msgspec.to_builtins(pipeline_report()), "colour": "green"}
    assert read_report(b"shop", msgspec.json.encode(found)) == pipeline_report()


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"a\nb", b"a\x00", "a\u202eb".encode(), b"a" * 201])
def test_keys_that_are_no_names_are_rejected(key: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_key(key)


CYCLE = [DatasetNode(kind="topic", name="orders", reads=[1]), DatasetNode(kind="topic", name="revenue", reads=[0])]
WRONG: dict[str, dict[str, Any]] = {
    "another name": {"pipeline": "other"},
    "no topics": {"reads": [], "writes": [], "queries": [], "datasets": []},
    "no topic name": {"reads": ["orders", "../etc"]},
    "queries of one name": {"queries": [{"query": "a"}, {"query": "a"}]},
    "a query name with a line break": {"queries": [{"query": "a\nb"}]},
    "a hidden topic of a query": {"queries": [{"query": "a", "sources": [{"topic": "secret"}]}]},
    "a hidden topic of the graph": {"datasets": [{"kind": "topic", "name": "secret"}]},
    "a cycle": {"datasets": msgspec.to_builtins(CYCLE)},
    "a dataset that is missing": {"datasets": [{"kind": "topic", "name": "orders", "reads": [7]}]},
    "a state that does not exist": {"state": "fine"},
    "a negative count": {"queries": [{"query": "a", "rows_in": -1}]},
    "an endless number": {"queries": [{"query": "a", "rows_in_per_s": 1e300}]},
    "a number as text": {"started_ms": "1"},
    "a time beyond all calendars": {"started_ms": 2**62},
    "too many queries": {"queries": [{"query": str(number)} for number in range(QUERIES_MAX + 1)]},
    "a long error": {"error": "e" * (ERROR_CHARS_MAX + 1)},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_misleading_reports_are_rejected(wrong: str) -> None:
    found = {**msgspec.to_builtins(pipeline_report()), **WRONG[wrong]}
    with pytest.raises(InvalidRecord) as refused:
        read_report(b"shop", msgspec.json.encode(found))
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"\xff", b"[" * 50_000, b'{"pipeline":"\\ud800"}'])
def test_other_bytes_are_rejected(value: bytes) -> None:
    with pytest.raises(InvalidRecord):
        read_report(b"shop", value)


def test_a_large_report_is_rejected_before_it_is_decoded() -> None:
    with pytest.raises(MessageTooLarge):
        read_report(b"shop", bytes(REPORT_BYTES_MAX + 1))


def test_a_full_report_has_room_in_the_limit() -> None:
    queries = [query_report(f"query {number}") for number in range(QUERIES_MAX)]
    assert len(encode_report(pipeline_report(queries=queries, error="e" * ERROR_CHARS_MAX))) < REPORT_BYTES_MAX


def test_a_stored_report_that_cannot_be_read_is_left_out() -> None:
    stored = StoredReport(report=pipeline_report(), sent_by="User:ann", host="10.0.0.1", received_ms=5)
    assert read_stored(encode_report(stored)) == stored
    assert read_stored(b"later versions write this") is None
