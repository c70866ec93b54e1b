"""Views: which ones a transformation reads, their order, and statements that are rejected."""

import pytest

from tidemill.pipelines.spec.core.graph import check_query, in_order, parameters, views_in_sql
from tidemill.pipelines.spec.core.spec import WrongSpec


def test_views_are_found_in_sql_but_not_in_texts_and_comments() -> None:
    text = "select * from Orders join x.clicks -- revenue\n where a = 'it''s paid' /* lost\nlost */"
    assert views_in_sql(text, ["orders", "clicks", "revenue", "paid", "lost"]) == {"orders", "clicks"}


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "-- drop table a\n (select 1)",
        "WITH a AS (select 1) SELECT * FROM a",
        "from orders select item",
        "select 'insert into' as found from orders",
    ],
)
def test_a_query_is_a_transformation(text: str) -> None:
    check_query("a.sql", text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("drop table orders", "a.sql: DROP is not allowed; a transformation is one query: SELECT or WITH"),
        ("/* x */ Create table t as select 1", "a.sql: CREATE is not allowed"),
        ("insert into t select 1", "a.sql: INSERT is not allowed"),
        ("with a as (select 1) insert overwrite t select * from a", "a.sql: INSERT is not allowed"),
        ("set spark.x = 1", "a.sql: SET is not allowed"),
        (" -- nothing\n", "a.sql contains no query"),
    ],
)
def test_a_statement_that_is_not_a_query_is_rejected(text: str, line: str) -> None:
    with pytest.raises(WrongSpec) as caught:
        check_query("a.sql", text)
    assert str(caught.value).startswith(line)


def test_transformations_are_ordered_by_their_inputs_without_circles() -> None:
    assert in_order("p.yml", {"c": ["b", "orders"], "b": ["a"], "a": ["orders"]}) == ["a", "b", "c"]
    with pytest.raises(WrongSpec, match=r"p.yml: transformations read each other: "):
        in_order("p.yml", {"a": ["b"], "b": ["a"]})


def test_the_parameters_of_a_function_are_its_views() -> None:
    assert parameters("a.py", "def a(orders, clicks): ...", "a") == ("orders", "clicks")
    with pytest.raises(WrongSpec, match=r"a\.py: function b is missing"):
        parameters("a.py", "def a(orders): ...", "b")
    with pytest.raises(WrongSpec, match=r"a\.py: line 1 is not Python"):
        parameters("a.py", "def a(:", "a")
