"""The Java clients set quotas and keep to them."""

import subprocess
from pathlib import Path

import pytest
from tests.compat.programs import JAVA, NEWEST_JAVA, java_class_path

from tidemill.testing import Broker

RUN_S = 150


@pytest.mark.parametrize("version", ["3.9.2", NEWEST_JAVA])
def test_quotas(version: str, tmp_path: Path) -> None:
    class_path = java_class_path(version, "Quotas", tmp_path)
    with Broker(process=True, settings={"quota.window.num": "2"}) as broker:
        command = [*JAVA, "-cp", class_path, "Quotas", broker.bootstrap_servers]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "ok"
