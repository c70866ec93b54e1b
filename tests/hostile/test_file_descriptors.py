"""A process that may open few files still serves a useful number of clients, and is not stalled by more."""

import subprocess
import sys

import pytest
from tests.hostile.attacked import ROOT, WAIT_S

from tidemill.servers.kafka.listener import connections_max


@pytest.mark.parametrize(
    ("file_descriptors", "asked", "accepted"),
    [(256, 10_000, 64), (1_024, 10_000, 768), (65_536, 10_000, 10_000), (20, 10_000, 5), (2, 10, 1)],
)
def test_connections_get_a_share_of_few_file_descriptors(file_descriptors: int, asked: int, accepted: int) -> None:
    assert connections_max(file_descriptors, asked) == accepted


def test_a_broker_with_256_file_descriptors_serves_many_clients_and_outlives_more() -> None:
    command = [sys.executable, "-m", "tests.hostile.few_files"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr


def test_handshakes_that_never_end_take_no_files_from_the_log() -> None:
    command = [sys.executable, "-m", "tests.hostile.few_files_tls"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
