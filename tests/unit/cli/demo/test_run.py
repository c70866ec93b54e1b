"""The end of a demo run: exit status and errors."""

import socket
from dataclasses import replace

import pytest
from tests.unit.cli.demo.snapshots import LATER

from tidemill.cli.demo import run
from tidemill.cli.errors import CommandFailed
from tidemill.model.addresses import Address


def test_an_early_reminder_or_a_lost_order_fails_the_demo() -> None:
    run._judge(LATER, drained=False)
    with pytest.raises(CommandFailed, match="3 reminders were delivered before they were due"):
        run._judge(replace(LATER, reminders_early=3), drained=False)
    with pytest.raises(CommandFailed, match="600 orders were written, but 500 aggregated"):
        run._judge(LATER, drained=True)


def test_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address("127.0.0.1", other.getsockname()[1])
        monkeypatch.setitem(run.DEFAULTS, "kafka", taken)
        assert run.free_address("kafka") == "127.0.0.1:0"
    assert run.free_address("kafka") == str(taken)
