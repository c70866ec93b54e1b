"""The same requests to Apache Kafka and to Tidemill: the answers are the same, but for differences that are meant."""

from collections.abc import Callable, Iterator

import pytest
from benchmarks.peers import kafka, tidemill
from tests.compat.comparison import Question, Side, differing, sides
from tests.compat.questions import on_records, on_settings, on_topics
from tests.compat.questions_groups import on_groups, on_transactions

pytestmark = pytest.mark.long

MEANT = {
    "consumer heartbeat: sign of life": "an assignment is sent until the member owns it: responses get lost",
}
"""Questions that are answered in another way here, and why."""


@pytest.fixture(scope="module")
def both() -> Iterator[list[Side]]:
    with kafka() as theirs, tidemill() as ours:
        if theirs is None:
            pytest.skip("Apache Kafka is not available: it needs java and mvn, and Maven's registry")
        with sides([theirs, ours]) as found:
            yield found


@pytest.mark.parametrize("ask", [on_topics, on_settings, on_records, on_groups, on_transactions])
def test_answers_are_the_same(both: list[Side], ask: Callable[[], Iterator[Question]]) -> None:
    questions = list(ask())
    assert len({question.name for question in questions}) == len(questions)
    found = differing(both, questions)
    reported = {name: answers for name, answers in found.items() if name not in MEANT}
    assert not reported, "".join(
        f"\n{name}\n  Kafka    {one}\n  Tidemill {other}" for name, (one, other) in reported.items()
    )
    alike = {question.name for question in questions} & set(MEANT) - set(found)
    assert not alike, "these differences are gone"
