"""Queries that end, fail, or lose their Spark; errors in one line."""

from typing import Any

import pytest

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spark.queries import PYTHON_ADVICE as ADVICE
from tidemill.pipelines.spark.queries import Queries, line_of


class Thread:
    def __init__(self, *, alive: bool) -> None:
        self._alive = alive

    def isAlive(self) -> bool:
        return self._alive

    def queryExecutionThread(self) -> "Thread":
        return self

    def streamingQuery(self) -> "Thread":
        return self


class Query:
    """What Spark gives for a query, as far as it is looked at."""

    def __init__(self, error: object = None, *, active: bool = True, alive: bool = True) -> None:
        self._error = error
        self._jsq = Thread(alive=alive)
        self.isActive = active
        self.stopped = False

    def exception(self) -> object:
        if isinstance(self._error, OSError):
            raise self._error
        return self._error

    def stop(self) -> None:
        self.stopped = True
        if isinstance(self._error, OSError):
            raise self._error


def queries(**named: Any) -> Queries:
    return Queries(named)


def test_queries_run_until_all_have_ended() -> None:
    assert not queries(a=Query(active=False), b=Query()).ended()
    assert queries(a=Query(active=False), b=Query(active=False)).ended()


@pytest.mark.parametrize(
    ("query", "line"),
    [
        (Query("tidemill.x.DataLost: offsets 3 to 5 are gone"), "out: offsets 3 to 5 are gone"),
        (Query(alive=False), "out: the query's thread died"),
        (
            Query(ConnectionRefusedError(111, "Connection refused")),
            r"Spark has ended \(.*Connection refused\); run the command again",
        ),
    ],
)
def test_the_reason_a_query_ended_is_one_line(query: Query, line: str) -> None:
    running = queries(out=query)
    with pytest.raises(PipelineError, match=line) as caught:
        running.ended()
    assert "\n" not in str(caught.value)
    running.stop()
    assert query.stopped


def test_a_thread_that_ended_in_order_is_no_death() -> None:
    assert queries(out=Query(active=False, alive=False)).ended()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x\ntidemill.pipelines.errors.DataLost: it is gone\n SQLSTATE: 38000", "it is gone"),
        ("Reason: Traceback (most recent call last):\n  File 1\n    f()\nTypeError: no\n SQLSTATE: 1", "TypeError: no"),
        ("org.apache.spark.SparkException: Job aborted.\n\tat a.b", "Job aborted."),
        ("nothing known", "nothing known"),
        (
            "Traceback:\n  x\nModuleNotFoundError: No module named 'tidemill'\n at",
            f"No module named 'tidemill': {ADVICE}",
        ),
        (
            "Traceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'pyarrow'\n at",
            f"No module named 'pyarrow': {ADVICE}",
        ),
        (
            'java.io.IOException: Cannot run program "/v/bin/python": error=2, No such file or directory\n\tat a.b',
            f'Cannot run program "/v/bin/python": error=2, No such file or directory: {ADVICE}',
        ),
    ],
)
def test_the_cause_is_found_in_a_long_error(text: str, line: str) -> None:
    assert line_of(text) == line
