"""Which records a filter accepts."""

import pytest

from tidemill.model.errors import InvalidRegularExpression
from tidemill.records.record import Record
from tidemill.servers.http.core.record_condition import MISSING, InvalidCondition
from tidemill.servers.http.core.record_filter import JSON_BYTES_MAX, FilterTexts, RecordFilter, json_in
from tidemill.servers.http.core.text_search import TEXT_CHARS_MAX

RECORD = Record(7, 1_000, b"customer-1", b'{"total": 150}', (("trace", b"1"), ("trace", None), ("binary", b"\xff")))


def accepts(record: Record = RECORD, partition: int = 3, **texts: object) -> bool:
    return RecordFilter(FilterTexts(**texts), json_in).accepts(record, partition)  # type: ignore[arg-type]


def test_an_empty_filter_accepts_everything() -> None:
    assert RecordFilter(FilterTexts(where="  "), json_in).accepts_all
    assert accepts(Record(0, 0, None, None))
    assert not RecordFilter(FilterTexts(key="a"), json_in).accepts_all


def test_parts_of_texts() -> None:
    assert accepts(key="mer-1")
    assert not accepts(key="Mer-1")
    assert accepts(value='"total": 1')
    assert accepts(header="trace=1")
    assert accepts(header="ace=")
    assert not accepts(header="trace=2")
    assert not accepts(Record(0, 0, None, None), key="a")
    assert accepts(key="mer", value="150", header="trace", where="$.total = 150 and $partition = 3")
    assert not accepts(key="mer", value="151")


def test_regular_expressions() -> None:
    assert accepts(key="^customer-[0-9]$", is_regex=True)
    assert not accepts(key="^omer", is_regex=True)
    assert accepts(header="^trace=1$", is_regex=True)
    assert accepts(Record(0, 0, b"\xff\xfe!", None), key="!$", is_regex=True)


def test_only_the_beginning_of_a_long_text_is_searched() -> None:
    """The end of a text that is longer than the limit is not seen, however many bytes its characters have."""
    for char in ("a", "\U0001f600"):
        whole = Record(0, 0, None, (char * TEXT_CHARS_MAX).encode())
        longer = Record(0, 0, None, (char * (TEXT_CHARS_MAX + 1)).encode())
        assert accepts(whole, value=f"{char}$", is_regex=True)
        assert not accepts(longer, value=f"{char}$", is_regex=True)
        assert accepts(longer, value=f"^{char}", is_regex=True)


def test_filters_that_are_refused() -> None:
    with pytest.raises(InvalidRegularExpression):
        accepts(key="(", is_regex=True)
    with pytest.raises(InvalidCondition):
        accepts(where="(")


@pytest.mark.parametrize(
    "payload",
    [None, b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b'"\\ud800"', b" " * (JSON_BYTES_MAX + 1), b"NaN"],
)
def test_payloads_that_are_not_json(payload: bytes | None) -> None:
    assert json_in(payload) is MISSING


def test_json() -> None:
    assert json_in(b' {"a": [1, null]} ') == {"a": [1, None]}
    assert json_in(b"7") == 7
