"""`tidemill produce` at a broker that takes nothing: clients retry, and a user waits for an error."""

from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.cli import produce
from tidemill.cli.produce import InputLine


class Slow:
    """A producer whose broker takes the records when it was asked to flush so often."""

    def __init__(self, flushes: int) -> None:
        self._flushes = flushes
        self._waiting: list[Any] = []

    def produce(self, topic: str, value: bytes, *, on_delivery: Any, **_: Any) -> None:
        self._waiting.append(on_delivery)

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        self._flushes -= 1
        if self._flushes > 0:
            return len(self._waiting)
        for answered in self._waiting:
            answered(None, Taken())
        return 0


class Taken:
    """A record that was written."""

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


def sending(flushes: int) -> Any:
    return produce._Run("orders", produce._PartitionChoice(0, [0]), [], Slow(flushes))


def lines() -> Iterator[InputLine]:
    yield InputLine(None, b"tea", 4)


def test_a_wait_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    run = sending(4)
    run.send(lines(), lambda _: None)
    run.report(as_json=False)
    out, err = capsys.readouterr()
    assert out == "orders partition 0 offset 7\n"
    assert err == (
        "the broker has not accepted all records for 10 s, retrying; check it with: tidemill cluster status; "
        "Ctrl-C stops\n"
    )


def test_an_empty_input_sends_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sending(1).send(lines(), lambda _: None)
    assert capsys.readouterr() == ("", "")


def test_an_interrupted_produce_reports_the_number_of_written_records(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(produce._Run, "_report_waiting", give_up)
    with pytest.raises(KeyboardInterrupt):
        sending(4).send(lines(), lambda _: None)
    assert capsys.readouterr().err == "stopped: 0 records are known to be written to orders\n"
