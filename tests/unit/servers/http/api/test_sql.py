"""The document of a result, made from what the engine writes."""

import json

from tidemill.servers.http.api.sql import result_document

FOUND = b"""{"meta": [{"name": "n", "type": "UInt64"}], "data": [[1], ["18446744073709551615"], [null]], "rows": 3,
"statistics": {"elapsed": 0.1, "rows_read": 7, "bytes_read": 56}}"""


def test_rows_are_copied_as_they_are() -> None:
    assert json.loads(result_document(FOUND, None, 0.25)) == {
        "columns": [{"name": "n", "type": "UInt64"}],
        "rows": [[1], ["18446744073709551615"], [None]],
        "row_count": 3,
        "truncated": False,
        "elapsed_s": 0.25,
        "rows_read": 7,
        "bytes_read": 56,
    }


def test_a_row_more_than_the_limit_is_left_out_and_said() -> None:
    found = json.loads(result_document(FOUND, 2, 0.25))
    assert (found["rows"], found["row_count"], found["truncated"]) == ([[1], ["18446744073709551615"]], 2, True)
    assert not json.loads(result_document(FOUND, 3, 0.25))["truncated"]
