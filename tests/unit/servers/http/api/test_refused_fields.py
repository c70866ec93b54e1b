"""The field of a refused change of a topic."""

import pytest

from tidemill.model import errors, topic_settings
from tidemill.model.errors import TidemillError
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.refused_fields import named_fields, refused_field

SETTINGS = {"retention.ms": "soon", "segment.ms": "5", "no.such": "1"}


def invalid(name: str, text: str) -> errors.InvalidConfig:
    with pytest.raises(errors.InvalidConfig) as caught:
        topic_settings.parse({name: text})
    return errors.InvalidConfig(f"create retention.ms: {caught.value}")


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (errors.InvalidTopic("a b"), "topic"),
        (errors.TopicAlreadyExists("a"), "topic"),
        (errors.InvalidPartitions("0"), "partitions"),
        (errors.InvalidReplicationFactor("9"), "replication_factor"),
        (errors.PolicyViolation("no"), ""),
        (errors.InvalidConfig("the policy forbids it"), "config"),
        (invalid("segment.ms", "x"), "config.segment.ms"),
        (invalid("segment.ms", "-4"), "config.segment.ms"),
        (invalid("no.such", "1"), "config.no.such"),
    ],
)
def test_an_error_has_the_field_that_it_is_about(error: TidemillError, field: str) -> None:
    assert refused_field(error, SETTINGS) == field


def test_an_error_about_a_field_is_refused_with_its_status_and_its_text() -> None:
    with pytest.raises(ApiProblem, match="there is one") as caught, named_fields({}):
        raise errors.TopicAlreadyExists("there is one")
    assert (caught.value.status, caught.value.field) == (409, "topic")


def test_other_errors_pass() -> None:
    with pytest.raises(errors.NotController), named_fields({}):
        raise errors.NotController("ask broker 2")
