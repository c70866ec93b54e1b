"""How commands speak."""

import io
import sys

import pytest

from tidemill.cli.errors import WrongUse
from tidemill.cli.output import confirm, hint, progress, remark, say, show, text_fields

ROWS: list[dict[str, object]] = [
    {"topic": "orders", "records": 1_234, "open": True},
    {"topic": "x", "records": None, "open": False},
]


def test_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, ("topic", "records", "open"), as_json=False)
    assert capsys.readouterr().out == "TOPIC   RECORDS  OPEN\norders  1,234    yes\nx       -        no\n"


def test_a_narrow_terminal_gets_each_row_by_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show(ROWS, ("topic", "records", "open"), as_json=False)
    assert "─" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "20")
    show(ROWS, ("topic", "records", "open"), as_json=False)
    assert capsys.readouterr().out == (
        "topic    orders\nrecords  1,234\nopen     yes\n\ntopic    x\nrecords  -\nopen     no\n"
    )


def test_json_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"a": 1, "b": "€"}], ("a",), as_json=True)
    assert capsys.readouterr().out == '[{"a": 1, "b": "€"}]\n'


def test_bytes_that_are_no_text_are_there_twice() -> None:
    assert text_fields(key=None, value=b"tea", other="\ufffd".encode()) == {
        "key": None,
        "value": "tea",
        "other": "\ufffd",
    }
    assert text_fields(body=b"\xff") == {"body": "\ufffd", "body_base64": "/w=="}


def test_an_empty_table_shows_a_sentence_or_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    show([], ("a",), as_json=False, empty="there is nothing yet")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "there is nothing yet\n")
    show([], ("a",), as_json=True)
    assert capsys.readouterr().out == "[]\n"


def test_a_hint_is_printed_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hint("this takes a while")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    hint("this takes a while")
    assert capsys.readouterr() == ("", "this takes a while\n")


def test_results_and_remarks_are_apart(capsys: pytest.CaptureFixture[str]) -> None:
    say("result")
    remark("remark")
    with progress("long work", 10) as advance:
        advance(10)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("result\n", "remark\n")


def test_a_confirmation_without_a_terminal_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    confirm("delete everything?", yes=True)
    with pytest.raises(WrongUse, match="--yes"):
        confirm("delete everything?", yes=False)
