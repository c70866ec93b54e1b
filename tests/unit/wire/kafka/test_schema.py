"""What loading the classes of messages costs: nothing that only tests of kio itself need."""

import subprocess
import sys
from pathlib import Path

LOAD = """
import sys
from tidemill.wire.kafka.schema import request_class, response_class
request_class(19, 7), response_class(19, 7)
print("hypothesis" in sys.modules)
import hypothesis
"""


def test_a_broker_does_not_load_hypothesis_where_it_is_installed(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-P", "-c", LOAD], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "False"), ran.stderr
    assert list(tmp_path.iterdir()) == []
