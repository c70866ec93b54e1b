"""The loop around running queries."""

import threading

import pytest
from tests.unit.pipelines.run.scripted_queries import Script, report

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run.runner import tend


def test_queries_are_stopped_when_one_fails_or_a_stop_is_requested() -> None:
    failing = Script([report(1, 1, 1)], "out: no")
    with pytest.raises(PipelineError, match="out: no"):
        tend(failing, threading.Event(), lambda _: None)
    assert failing.stopped == 1
    stop = threading.Event()
    stop.set()
    endless = Script([report(1, 1, 1)] * 99)
    tend(endless, stop, lambda _: None)
    assert endless.stopped == 1
