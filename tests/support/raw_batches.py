"""Makes batches of a few values for the raw client, and reads them."""

import time

from tidemill.client.kafka import LATEST, KafkaClient, ProducerIdentity
from tidemill.model.topics import TopicPartition
from tidemill.records.arrow import Decoder, load_kernels
from tidemill.records.build import NewRecord, build_batch

NOW_MS = time.time_ns() // 1_000_000  # older records would be removed by retention while a test runs


def batch(*values: str, identity: ProducerIdentity | None = None, sequence: int = 0) -> bytearray:
    records = [NewRecord(None, value.encode(), (), NOW_MS + at) for at, value in enumerate(values)]
    if identity is None:
        return build_batch(records)
    return build_batch(
        records,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
        transactional=identity.transactional_id is not None,
    )


def values_in(client: KafkaClient, partition: TopicPartition, *, committed: bool = False, start: int = 0) -> list[str]:
    end = client.list_offsets({partition: LATEST}, committed=committed)[partition].offset
    decoder = Decoder(*partition, columns=("value",), kernels=load_kernels("python"))
    return [
        value.decode()
        for piece in client.read_range(partition, start, end, committed=committed)
        for rows in decoder.decode(piece.records, start, end, piece.aborted)
        for value in rows["value"].to_pylist()
    ]


class Numbered:
    """Sends "0", "1", ... through a pipe, one to a batch, to each of two partitions."""

    def __init__(self, client: KafkaClient, topic: str, identity: ProducerIdentity) -> None:
        self.partitions = [TopicPartition(topic, index) for index in range(2)]
        self.pipe = client.pipe(identity.transactional_id)
        self.sent = 0
        self._identity = identity

    def send(self, count: int) -> None:
        for _ in range(count):
            value = f"{self.sent}"
            each = {part: batch(value, identity=self._identity, sequence=self.sent) for part in self.partitions}
            self.pipe.send(each)
            self.sent += 1

    def written(self, client: KafkaClient) -> list[list[str]]:
        return [values_in(client, part) for part in self.partitions]

    def wanted(self) -> list[list[str]]:
        return [[f"{number}" for number in range(self.sent)]] * len(self.partitions)
