"""Workers keep what they loaded out of the garbage collector, and their memory for the next task."""

import subprocess
import sys

PROGRAM = """
import gc, resource
from tidemill.pipelines.spark.worker import settled

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for task in range(2):
    with settled():
        import json, decimal, email.message
    frozen = gc.get_freeze_count()
    print("frozen", frozen > 1000, "again", frozen == (first if task else frozen))
    first = frozen

with settled():
    import xml.dom.minidom
print("more", gc.get_freeze_count() > first)

bytearray(4_000_000)
before = faults()
for _ in range(20):
    bytearray(4_000_000)
print("kept", faults() - before < 1000)
"""


def test_a_worker_settles() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    lines = said.splitlines()
    assert lines[:3] == ["frozen True again True", "frozen True again True", "more True"]
    if sys.platform == "linux":
        assert lines[3] == "kept True"
