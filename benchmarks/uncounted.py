"""A copy of the source tree without the lines that count produced requests, bytes and records.

An object that counts nothing would still be looked up and called, so comparing with one shows only a part of the cost.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tidemill

SOURCE = Path(tidemill.__file__).parent
REPLACED = {
    "servers/kafka/connection.py": {
        "        self.channel.traffic.bytes_in += nbytes\n": "",
        "        self.channel.apis |= 1 << key\n": "",
        "            self.channel.traffic.bytes_out += size + 4\n": "",
        "        self._server.traffic[slot.api.name].answered(perf_counter() - slot.started)\n": "",
        "        slot = ResponseSlot(api, len(frame), perf_counter())\n": "        slot = ResponseSlot(api, len(frame), 0.0)\n",
    },
    "servers/kafka/produce.py": {
        "    broker.metrics.topic(name).produced(len(records), _COUNT.unpack_from(records, COUNT_AT)[0])\n": "",
    },
    "streams/segments/disk.py": {
        "            with self._counting:  # flushes run on several threads\n"
        "                self._flush_duration.add(perf_counter() - began)\n": "            pass\n",
    },
}
"""The lines that count, by file, with what stands there instead. Quotas are off, so nothing else needs the start time."""


@contextmanager
def uncounted_tree() -> Iterator[str]:
    """The folder of the copy, for PYTHONPATH. A line that is not there any more is an error."""
    with tempfile.TemporaryDirectory(prefix="tidemill-uncounted-") as folder:
        copy = Path(folder, SOURCE.name)
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name, lines in REPLACED.items():
            text = (copy / name).read_text()
            for line, instead in lines.items():
                assert text.count(line) == 1, f"{name} does not have this line once; update REPLACED: {line!r}"
                text = text.replace(line, instead)
            (copy / name).write_text(text)
        yield folder
