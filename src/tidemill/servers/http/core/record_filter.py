"""Decides which records a client asked for: part of a key, of a value or of a header, and a condition on JSON."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tidemill.records.record import Record
from tidemill.servers.http.core.record_condition import MISSING, Condition, RecordValues, parse_condition
from tidemill.servers.http.core.text_search import TEXT_CHARS_MAX, TextSearch

JSON_BYTES_MAX = 1024 * 1024
"""A longer value is not read as JSON."""
HEADERS_MAX = 1_000
"""The headers of a record that a filter looks at."""

BytesTest = Callable[[bytes | None], bool]
JsonReader = Callable[[bytes | None], Any]
"""The JSON document in a key or value; MISSING if it has none."""


class FilterTexts(NamedTuple):
    """A filter as the client writes it. An empty text accepts every record."""

    key: str = ""
    value: str = ""
    header: str = ""
    where: str = ""
    is_regex: bool = False


class RecordFilter:
    """A compiled filter. InvalidCondition or InvalidRegularExpression if a text of it is not valid."""

    def __init__(self, texts: FilterTexts, read_json: JsonReader) -> None:
        self._key = _bytes_test(texts.key, is_regex=texts.is_regex)
        self._value = _bytes_test(texts.value, is_regex=texts.is_regex)
        self._header = _bytes_test(texts.header, is_regex=texts.is_regex)
        self._where: Condition | None = parse_condition(texts.where) if texts.where.strip() else None
        self._read_json = read_json

    @property
    def accepts_all(self) -> bool:
        """Whether it accepts every record."""
        return not any((self._key, self._value, self._header, self._where))

    def accepts(self, record: Record, partition: int) -> bool:
        """Whether the client asked for this record."""
        if self._key is not None and not self._key(record.key):
            return False
        if self._value is not None and not self._value(record.value):
            return False
        if self._header is not None and not self._has_header(record, self._header):
            return False
        return self._where is None or self._where(self._values(record, partition))

    def _has_header(self, record: Record, test: BytesTest) -> bool:
        return any(test(name.encode() + b"=" + (value or b"")) for name, value in record.headers[:HEADERS_MAX])

    def _values(self, record: Record, partition: int) -> RecordValues:
        headers: dict[str, list[str | None]] = {}
        for name, value in record.headers[:HEADERS_MAX]:
            headers.setdefault(name, []).append(None if value is None else value.decode(errors="replace"))
        return RecordValues(
            lambda: self._read_json(record.value),
            lambda: self._read_json(record.key),
            headers,
            partition,
            record.offset,
            record.timestamp,
        )


def json_in(payload: bytes | None) -> Any:
    """The JSON document in a payload; MISSING if it is none."""
    if payload is None or len(payload) > JSON_BYTES_MAX:
        return MISSING
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeError, ValueError):
        return MISSING


def _bytes_test(text: str, *, is_regex: bool) -> BytesTest | None:
    if not text:
        return None
    if not is_regex:
        wanted = text.encode(errors="surrogatepass")
        return lambda payload: payload is not None and wanted in payload
    finds = TextSearch(text).finds
    # A character has at most four bytes. One more shows that the text does not end there.
    most = 4 * (TEXT_CHARS_MAX + 1)
    return lambda payload: payload is not None and finds(payload[:most].decode(errors="replace"))
