"""Datasets are placed from left to right, and so that few lines cross."""

from itertools import combinations

from tidemill.servers.http.core.graph_layout import GraphPlace, layout
from tidemill.wire.pipeline_report import NODE_READS_MAX, NODES_MAX


def crossings(reads: list[list[int]], places: list[GraphPlace]) -> int:
    """How many pairs of lines between neighbouring columns cross."""
    lines = [(places[read], places[at]) for at, sources in enumerate(reads) for read in sources]
    return sum(
        (first[0].row - other[0].row) * (first[1].row - other[1].row) < 0
        for first, other in combinations(lines, 2)
        if first[0].column == other[0].column and first[1].column == other[1].column
    )


def test_a_chain_is_one_line() -> None:
    assert layout([[], [0], [1]]) == [GraphPlace(0, 0), GraphPlace(1, 0), GraphPlace(2, 0)]


def test_a_dataset_is_right_of_all_that_it_reads() -> None:
    places = layout([[], [], [0], [1, 2]])
    assert [place.column for place in places] == [0, 0, 1, 2]
    assert places[3].row == 0.5, "a column with fewer datasets is centred"


def test_columns_are_sorted_until_no_line_crosses() -> None:
    reads = [[], [], [], [2], [1], [0], [3], [4], [5]]
    assert crossings(reads, layout(reads)) == 0
    needs_both_directions_twice = [[], [], [], [1], [0, 2], [0, 1], [4, 5]]
    assert crossings(needs_both_directions_twice, layout(needs_both_directions_twice)) == 0


def test_no_two_datasets_share_a_place() -> None:
    reads = [list(range(max(0, at - 3), at))[: at % 4] for at in range(40)]
    places = layout(reads)
    assert len(set(places)) == len(places)
    assert all(places[read].column < places[at].column for at, sources in enumerate(reads) for read in sources)


def test_the_largest_graph_is_placed() -> None:
    reads = [list(range(max(0, at - NODE_READS_MAX), at)) for at in range(NODES_MAX)]
    assert layout(reads)[-1].column == NODES_MAX - 1
    assert layout([]) == []
