"""For any bytes, the batch code returns records or raises one of three errors, within bounds."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable

from tidemill.model.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidemill.records.build import NewRecord, build_batch, end_marker, marker_of
from tidemill.records.compact import compact_batch
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, check_crc, iter_headers, read_header, seal
from tidemill.records.read import read_records
from tidemill.records.validate import check_produced, recompress, records_without_key

SECONDS = 3.0
ROUNDS_MIN = 50
LIMIT_BYTES = 1 << 20
EXPECTED = (CorruptMessage, InvalidRecord, UnsupportedCompressionType)


def some_batch(rng: random.Random) -> bytearray:
    if rng.random() < 0.1:
        return end_marker(rng.randrange(100), 1, rng.random() < 0.5, 1_700_000_000_000)
    records = [
        NewRecord(
            rng.choice([None, rng.randbytes(rng.randrange(8))]),
            rng.choice([None, b"v" * rng.randrange(300)]),
            tuple((f"h{i}", rng.choice([None, b"x"])) for i in range(rng.randrange(3))),
            1_700_000_000_000 + rng.randrange(100_000),
        )
        for _ in range(rng.randrange(1, 30))
    ]
    return build_batch(records, codec=rng.choice(list(Codec)), producer_id=5, producer_epoch=0, base_sequence=0)


def mutate(rng: random.Random, batch: bytearray) -> bytearray:
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(batch) + 1)
        match rng.randrange(5):
            case 0:
                batch[at : at + 1] = rng.randbytes(1)
            case 1:
                del batch[at : at + rng.randrange(1, 20)]
            case 2:
                batch[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 3:
                batch[at : at + 8] = rng.choice([b"\xff", b"\x7f", b"\x80", b"\x00"]) * rng.choice([1, 4, 8])
            case 4:
                del batch[at:]
    if len(batch) >= HEADER_SIZE and rng.random() < 0.7:  # a right length and CRC let the lie go deeper
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        batch[16] = 2
        seal(batch, 0, len(batch))
    return batch


def every_other(batch: bytearray) -> bytearray:
    again = compact_batch(
        batch, lambda record: record.offset % 2 == 0, keep_empty=True, delete_horizon_ms=7, limit_bytes=LIMIT_BYTES
    )
    assert again is not None
    check_crc(again, 0, read_header(again))
    return again


def call_everything(batch: bytearray, outcomes: Counter[str]) -> None:
    calls: dict[str, Callable[[], object]] = {
        "headers": lambda: check_crc(batch, *list(iter_headers(batch))[-1]) if batch else None,
        "partial": lambda: list(iter_headers(memoryview(batch), partial_ok=True)),
        "read": lambda: list(read_records(bytes(batch), limit_bytes=LIMIT_BYTES)),
        "produce": lambda: check_produced(memoryview(batch), version=9),
        "recompress": lambda: list(read_records(recompress(batch, Codec.NONE, limit_bytes=LIMIT_BYTES))),
        "keys": lambda: records_without_key(batch, limit_bytes=LIMIT_BYTES),
        "compact": lambda: list(read_records(every_other(batch))),
        "marker": lambda: marker_of(batch),
        "header": lambda: read_header(batch),
    }
    for name, call in calls.items():
        try:
            call()
        except EXPECTED as error:
            outcomes[f"{name} {type(error).__name__}"] += 1
        else:
            outcomes[f"{name} fine"] += 1


def test_mutated_batches() -> None:
    seed = int(os.environ.get("TIDEMILL_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed} (set TIDEMILL_FUZZ_SEED to repeat)")
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    until = time.monotonic() + SECONDS
    rounds = 0
    while rounds < ROUNDS_MIN or time.monotonic() < until:
        call_everything(mutate(rng, some_batch(rng)), outcomes)
        rounds += 1
    print(rounds, "rounds", dict(outcomes))
    assert outcomes["header fine"] > 0
    assert outcomes["read CorruptMessage"] > 0


def test_random_bytes() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(300):
        call_everything(bytearray(rng.randbytes(rng.randrange(200))), outcomes)
    assert outcomes["header fine"] + outcomes["header CorruptMessage"] == 300
