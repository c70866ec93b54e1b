"""`tidemill bench`."""

import pytest
from tests.support.command_line import CommandLine

FAILED, WRONG_USE = 1, 2


def test_the_benchmark_reads_all_records_and_deletes_its_topics(tidemill: CommandLine) -> None:
    rows = tidemill.fine("bench", "--records", "3000", "--size", "10", "--singles", "20", "-p", "2", "--json").json()
    assert [(row["what"], row["records"]) for row in rows] == [
        ("written, acks=all", 3_000),
        ("read", 3_000),
        ("one by one", 20),
    ]
    assert all(row["per_second"] > 0 for row in rows)
    assert 0 < rows[2]["p50_ms"] <= rows[2]["p99_ms"]
    assert tidemill.fine("topic", "list").out == ""


def test_people_get_a_table(tidemill: CommandLine) -> None:
    reported = tidemill.fine("bench", "--records", "100", "--size", "10", "--singles", "0", "--acks", "1")
    assert reported.lines[0].split() == [
        "WHAT",
        "RECORDS",
        "SECONDS",
        "PER_SECOND",
        "MB_PER_SECOND",
        "P50_MS",
        "P99_MS",
    ]
    assert [line.split()[0] for line in reported.lines[1:]] == ["written,", "read"]
    assert reported.err.startswith("100 records of 10 bytes, 1 partition, acks=1, at ")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--acks", "7"], WRONG_USE, "--acks 7 is not one of 0, 1, all"),
        (["--records", "0"], WRONG_USE, "--records"),
        (["-b", "127.0.0.1:1"], FAILED, "no broker answers at 127.0.0.1:1; start one with: tidemill serve"),
    ],
)
def test_refusals_are_one_line(tidemill: CommandLine, words: list[str], code: int, said: str) -> None:
    assert said in tidemill.refused(code, "bench", *words)


def test_a_record_that_is_too_large_leaves_nothing_behind(tidemill: CommandLine) -> None:
    assert "too large" in tidemill.refused_after_remarks(FAILED, "bench", "--records", "2", "--size", "5000000")
    assert tidemill.fine("topic", "list").out == ""
