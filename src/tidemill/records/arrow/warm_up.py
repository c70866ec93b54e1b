"""Compiles the kernels ahead of time by running each once on a few records, so that the first real call is fast."""

import numpy as np
import pyarrow as pa

from tidemill.records.arrow.columns import Columns, Runs
from tidemill.records.arrow.decoder import Decoder
from tidemill.records.arrow.encoder import Encoder
from tidemill.records.arrow.kernels import Kernels
from tidemill.records.arrow.schema import HEADER
from tidemill.records.hashing import PARTITIONERS


def warm_up(kernels: Kernels) -> None:
    """Compile all kernels, or load them from the cache. Takes seconds once per machine and milliseconds later."""
    headers = pa.array([[{"key": "h", "value": b"1"}], None], pa.list_(HEADER))
    rows = pa.record_batch({"key": [b"a", None], "value": [b"1", None], "headers": headers})
    encoder = Encoder(rows, now_ms=0, kernels=kernels)
    for partitioner in PARTITIONERS:
        encoder.dealt(encoder.partitions(2, 0, partitioner), 2)
    for encoded in encoder.batches():
        for _ in Decoder("warm", 0, kernels=kernels).decode(encoded.batch):
            pass
    columns = Columns.of(rows, 0)
    runs = Runs(np.array([len(rows)]), np.zeros(1, np.int64), np.arange(len(rows)))
    kernels.write_runs(kernels.prepare(columns), runs, int(columns.sizes().sum()))
