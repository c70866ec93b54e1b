"""The contents of a lake: commits that are read back, and what their offsets prove."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.pipelines.lake.core.contents import Commit, LakeFile, OffsetRun, in_order, judge, read_commit, small_runs


def test_a_commit_reads_back() -> None:
    commit = Commit(3, "query", 7, (LakeFile("a.parquet", 1, 2, 3, 4, 5),))
    assert read_commit(commit.name, commit.text()) == commit


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_verdict_is_that_of_counting(drawn: list[tuple[int, int]]) -> None:
    runs = [OffsetRun(first, first + length) for first, length in drawn]
    seen = [offset for run in runs for offset in range(run.first, run.end)]
    verdict = judge(0, runs)
    assert (verdict.first, verdict.last, verdict.rows) == (min(seen), max(seen), len(seen))
    assert verdict.missing == max(seen) - min(seen) + 1 - len(set(seen))
    assert verdict.doubled == len(seen) - len(set(seen))
    assert verdict.contiguous == (sorted(seen) == list(range(min(seen), max(seen) + 1)))


def test_holes_and_duplicates_are_each_a_gap_in_the_proof() -> None:
    assert judge(0, [OffsetRun(0, 3), OffsetRun(3, 5)]).contiguous
    assert not judge(0, [OffsetRun(0, 3), OffsetRun(4, 5)]).contiguous
    assert not judge(0, [OffsetRun(0, 3), OffsetRun(2, 5)]).contiguous


def test_files_whose_offsets_interleave_are_read_together() -> None:
    files = [LakeFile(name, 1, 1, 0, *span) for name, span in {"c": (8, 9), "a": (0, 4), "b": (3, 6)}.items()]
    assert [[file.path for file in group] for group in in_order(files)] == [["a", "b"], ["c"]]


def test_only_neighbours_that_are_small_are_put_together() -> None:
    sizes = {
        "d=1/a": (0, 10),
        "d=1/b": (1, 10),
        "d=1/big": (2, 80),
        "d=1/c": (3, 10),
        "d=1/e": (4, 45),
        "d=1/f": (5, 49),
    }
    files = [LakeFile(path, 1, size, 0, first, first) for path, (first, size) in sizes.items()]
    other = [LakeFile("d=2/a", 1, 1, 0, 9, 9), LakeFile("d=1/p1", 1, 1, 1, 0, 0)]
    runs = [[file.path for file in run] for run in small_runs([*other, *reversed(files)], 100)]
    assert runs == [["d=1/a", "d=1/b"], ["d=1/c", "d=1/e"]]


def test_a_file_of_half_the_size_stays_and_a_run_may_have_the_whole_size() -> None:
    def runs(*sizes: int) -> list[list[int]]:
        files = [LakeFile(str(first), 1, size, 0, first, first) for first, size in enumerate(sizes)]
        return [[file.size for file in run] for run in small_runs(files, 100)]

    assert runs(49, 49) == [[49, 49]]
    assert runs(50, 49, 49) == [[49, 49]]
    assert runs(49, 50, 49) == []
    assert runs(30, 30, 40) == [[30, 30, 40]]
    assert runs(30, 30, 41) == [[30, 30]]


def test_a_commit_is_whole_only_when_it_says_so() -> None:
    added = Commit(3, "query", 7, (LakeFile("a.parquet", 1, 2, 3, 4, 5),))
    whole = replace(added, whole=True)
    assert not read_commit(added.name, added.text()).whole
    assert read_commit(whole.name, whole.text()) == whole
