"""Which partition of the journal has a message: by its id, and by its number.

The partition of a new message follows from its id, so a call that names a message by id goes to one partition. The
numbers of the messages of a partition begin with the partition, so a call by number does, too. A dead letter stays in
its partition: its id ends with the number that it had (`dead_letter_id`), and follows that number.
"""

import zlib

from tidemill.timelines.core.lease import dead_letter_origin

SEQ_BITS = 44
"""A partition numbers 17 million million messages. Numbers of 512 partitions stay below 2^53, exact in JSON."""
PARTITIONS_MAX = 512


def first_seq(partition: int) -> int:
    """The number before the first one of a partition."""
    return partition << SEQ_BITS


def partition_of_seq(seq: int, partitions: int) -> int:
    """The partition of a message by its number; of an invalid number, any."""
    return max(0, seq >> SEQ_BITS) % partitions


def partition_of_id(message_id: str, partitions: int) -> int:
    """The partition of a message by its id."""
    if dead_letter_origin(message_id) is not None:
        return partition_of_seq(int(message_id.rpartition(".")[2]), partitions)
    return zlib.crc32(message_id.encode("utf-8", "surrogatepass")) % partitions
