"""A checkpoint is the old one or the new one, never a mix."""

from contextlib import suppress
from random import Random

from tidemill.streams.segments import checkpoint
from tidemill.streams.segments.checkpoint import Checkpoint, SegmentNote
from tidemill.testing.faults import SimDisk


def test_a_checkpoint_comes_back_or_not_at_all() -> None:
    one = Checkpoint(
        3, 40, SegmentNote(30, 512, 6, 5), (SegmentNote(0, 900, 7, 1),), {"producers": [[1, 2]]}, cut_to=35
    )
    data = checkpoint.encode(one)
    assert checkpoint.decode(data) == one
    random = Random(4)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[random.randrange(len(damaged) - 1)] ^= 1 << random.randrange(8)
        assert checkpoint.decode(bytes(damaged)) in (None, one), "the CRC may have lost only the case of a letter"
    for cut in range(len(data) - 1):
        assert checkpoint.decode(data[:cut]) is None


def test_b12_a_power_cut_leaves_the_old_checkpoint_or_the_new_one() -> None:
    """The file is flushed before it gets its name: never an empty one, whatever operation is the last."""
    old, new = (Checkpoint(0, end, SegmentNote(0, end, 6, 5), (), {"at": end}) for end in (10, 20))
    seen = set()
    for seed in range(20):
        for stop_after in range(1, 12):
            disk = SimDisk(Random(seed))
            disk.make_dir("d")
            checkpoint.write(disk, "d", old)
            disk.fail_at = disk.operations + stop_after
            with suppress(OSError):
                checkpoint.write(disk, "d", new)
            found = checkpoint.read(disk.power_cut(), "d")
            assert found in (old, new), f"seed {seed}, operation {stop_after}"
            assert found == new or disk.dead, "it is safe once it is written"
            seen.add(found == new)
    assert seen == {True, False}
