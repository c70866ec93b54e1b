"""Assigns keys to partitions like other producers do, so that keys written by both match.

- `consistent_random`, the default: CRC-32 of the key. This is librdkafka's default, and so that of confluent-kafka and
  `tidemill produce`.
- `murmur2_random`: murmur2 of the key. This is the default of Java's producer, of Spark's own kafka sink and of Kafka
  Streams.

Rows without a key (for `consistent_random` also with an empty one) go to the partition that the caller gives:
`unkeyed`. Both producers choose such a partition at random and keep it for a while.
"""

import numpy as np
import numpy.typing as npt

from tidemill.records.arrow.columns import Columns
from tidemill.records.arrow.kernels import Kernels
from tidemill.records.hashing import CONSISTENT_RANDOM, MURMUR2_RANDOM, PARTITIONERS

DEFAULT_PARTITIONER = CONSISTENT_RANDOM


def partitions_of(
    columns: Columns, count: int, unkeyed: int, kernels: Kernels, partitioner: str = DEFAULT_PARTITIONER
) -> npt.NDArray[np.int64]:
    """Return the partition of each row, 0 to `count` - 1."""
    if partitioner == MURMUR2_RANDOM:
        return kernels.by_murmur2(columns, count, unkeyed)
    if partitioner == CONSISTENT_RANDOM:
        return kernels.by_crc32(columns, count, unkeyed)
    raise ValueError(f"there is no partitioner {partitioner!r}; choose one of {', '.join(PARTITIONERS)}")
