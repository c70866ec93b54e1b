"""Record batches to Arrow and back, in rows per second of one core: compiled kernels, the reference, and two limits.

The limits are Arrow's own C++ in the same run: the same rows read from and written to Parquet in memory, without
dictionaries and with the same codec. Reads use batches of 16 KiB, the default of producers. Writes use our default
batch size, about a megabyte.

python -m benchmarks.arrow_kernels [--rows 100000] [--full]
"""

import argparse
import io
import random
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import machine
from tidemill.records.arrow import BATCH_BYTES, Decoder, Encoder, Kernels, load_kernels, warm_up
from tidemill.records.compression import Codec

NOW_MS = 1_700_000_000_000
READ_BATCH_BYTES = 16 * 1024
REPEATS = 5
REFERENCE_SHARE = 20  # the reference is slow, and its rate does not depend on the number of rows


def table(rows: int, size: int) -> pa.RecordBatch:
    """Rows whose values compress to about a half."""
    draw = random.Random(4)
    return pa.record_batch(
        {
            "key": [b"key-%08d" % draw.randrange(10**8) for _ in range(rows)],
            "value": [draw.randbytes(size // 2) + b"." * (size - size // 2) for _ in range(rows)],
        }
    )


def rate(rows: int, work: Callable[[], object]) -> float:
    """The best of several runs, in rows per second of processor."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return rows / best


def encode(kernels: Kernels, rows: pa.RecordBatch, codec: Codec, batch_bytes: int = BATCH_BYTES) -> bytes:
    encoder = Encoder(rows, now_ms=NOW_MS, kernels=kernels)
    return b"".join(each.batch for each in encoder.batches(codec=codec, batch_bytes=batch_bytes))


def decode(kernels: Kernels, batches: bytes, *columns: str) -> int:
    decoder = Decoder("t", 0, columns=columns, kernels=kernels)
    return sum(batch.num_rows for batch in decoder.decode(batches))


def to_parquet(rows: pa.RecordBatch, codec: Codec) -> bytes:
    out = io.BytesIO()
    whole = pa.Table.from_batches([rows])
    pq.write_table(whole, out, compression=codec.name.lower(), use_dictionary=False, write_statistics=False)
    return out.getvalue()


def from_parquet(data: bytes) -> None:
    pq.read_table(io.BytesIO(data), use_threads=False)


def compare(rows: int, size: int, codec: Codec) -> str:
    compiled, reference = load_kernels("numba"), load_kernels("python")
    whole = table(rows, size)
    few = whole.slice(0, max(1, rows // REFERENCE_SHARE))
    batches, few_batches = (encode(compiled, part, codec, READ_BATCH_BYTES) for part in (whole, few))
    parquet = to_parquet(whole, codec)
    read = rate(rows, lambda: decode(compiled, batches, "key", "value", "offset", "timestamp"))
    read_slowly = rate(len(few), lambda: decode(reference, few_batches, "key", "value", "offset", "timestamp"))
    read_limit = rate(rows, lambda: from_parquet(parquet))
    write = rate(rows, lambda: encode(compiled, whole, codec))
    write_slowly = rate(len(few), lambda: encode(reference, few, codec))
    write_limit = rate(rows, lambda: to_parquet(whole, codec))
    return (
        f"{size:6} B {codec.name.lower():6}"
        f"{read / 1e6:8.2f} M/s {read / read_slowly:6.1f} x {read / read_limit:6.2f} x"
        f"{write / 1e6:10.2f} M/s {write / write_slowly:6.1f} x {write / write_limit:6.2f} x"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--full", action="store_true", help="a million rows")
    chosen = options.parse_args()
    rows = 1_000_000 if chosen.full else chosen.rows
    machine.head("arrow_kernels")
    began = time.perf_counter()
    warm_up(load_kernels("numba"))
    print(f"warm-up of the kernels: {time.perf_counter() - began:.1f} s (once per machine, then from the cache)")
    print("  value codec      read      / python  / parquet     write      / python  / parquet")
    for size in (100, 1000):
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            print(compare(rows if size == 100 else rows // 4, size, codec), flush=True)


if __name__ == "__main__":
    main()
