"""Processor time of the source: each stage of a task alone, on the bytes that a task reads.

python -m benchmarks.spark_stages [--rows 100000] [--size 1000]

Seconds of processor for a million rows, in this process; the other end of the pipe is a separate process. Every source
has to decompress the same bytes, so decompression alone, on all cores, is a limit for all of them.
"""

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from benchmarks import machine
from benchmarks.spark_source import CODECS, CORES, fill
from tidemill.client.kafka import KafkaClient
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.source.core.options import COLUMNS
from tidemill.pipelines.source.reading import GROUP_BYTES
from tidemill.pipelines.spark.worker import settled
from tidemill.records.arrow import Decoder, DecompressedRecords, load_kernels
from tidemill.records.compression import codec_of
from tidemill.records.header import HEADER_SIZE, Buffer, iter_headers
from tidemill.testing import Broker

ROUNDS = 7
_DRAIN = """
import socket, sys
room, pipe = bytearray(65536), socket.socket(fileno=int(sys.argv[1]))
while pipe.recv_into(room):
    pass
"""


def cpu_s(work: Callable[[], object]) -> float:
    """The minimum of several runs."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def fetched(servers: str, topic: str, rows: int) -> Iterator[Buffer]:
    """The bytes that tasks fetch from the broker."""
    with KafkaClient({"bootstrap.servers": servers}) as client:
        for index in range(CORES):
            for piece in client.read_range(TopicPartition(topic, index), 0, rows // CORES):
                yield piece.records


def forget(pieces: Iterable[Buffer]) -> None:
    for _ in pieces:
        pass


def decompressed(pieces: Iterable[Buffer], room: DecompressedRecords) -> None:
    for piece in pieces:
        for position, header in iter_headers(piece, partial_ok=True):
            batch = memoryview(piece)[position : position + header.size]
            if header.codec and len(batch) == header.size:
                room.clear()
                room.add(codec_of(header.codec), batch[HEADER_SIZE:])


def decoded(pieces: Iterable[Buffer], room: DecompressedRecords, take: Callable[[pa.RecordBatch], None]) -> None:
    decoder = Decoder("t", 0, columns=COLUMNS, group_bytes=GROUP_BYTES, kernels=load_kernels("numba"), room=room)
    for piece in pieces:
        for batch in decoder.decode(piece):
            take(batch)


def piped(pieces: Iterable[Buffer], room: DecompressedRecords) -> None:
    """Decode, and write into a pipe as Spark's workers do."""
    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", _DRAIN, str(theirs.fileno())], pass_fds=[theirs.fileno()]), theirs:
        writer: list[pa.RecordBatchStreamWriter] = []
        with ours, ours.makefile("wb", 65536) as out:

            def take(batch: pa.RecordBatch) -> None:
                if not writer:
                    writer.append(pa.RecordBatchStreamWriter(out, batch.schema))
                writer[0].write_batch(batch)

            decoded(pieces, room, take)
            out.flush()
            ours.shutdown(socket.SHUT_WR)


def compare(servers: str, codec: str, rows: int, size: int) -> None:
    topic = f"stages-{codec}"
    fill(servers, topic, rows, size, codec)
    pieces, room = list(fetched(servers, topic, rows)), DecompressedRecords()
    fetch = cpu_s(lambda: forget(fetched(servers, topic, rows)))
    inflate = cpu_s(partial(decompressed, pieces, room))
    decode = cpu_s(partial(decoded, pieces, room, lambda _: None))
    whole = cpu_s(partial(piped, pieces, room))
    million = 1e6 / rows
    shown = {"fetch": fetch, "decompress": inflate, "decode": decode - inflate, "pipe": whole - decode}
    each = ", ".join(f"{name} {took * million:.2f}" for name, took in shown.items())
    bound = f"; decompression alone allows {CORES * rows / inflate:,.0f} rows/s" if codec != "none" else ""
    print(f"{size:>5} B {codec:<5}{each}; all {(fetch + whole) * million:.2f} cpu s/million{bound}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--size", type=int, default=1000)
    given = options.parse_args()
    machine.head("spark_stages")
    with Broker(process=True) as broker, settled():
        for codec in CODECS:
            compare(broker.bootstrap_servers, codec, given.rows, given.size)


if __name__ == "__main__":
    main()
