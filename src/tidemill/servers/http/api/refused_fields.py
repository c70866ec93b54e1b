"""Finds the field of a change of a topic that the Kafka server has refused, so that a form can show it there."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from tidemill.model import errors
from tidemill.model.errors import TidemillError
from tidemill.servers.http.api.api_problem import ApiProblem, status_of_error

CONFIG = "config"
_FIELDS: dict[type[TidemillError], str] = {
    errors.InvalidTopic: "topic",
    errors.TopicAlreadyExists: "topic",
    errors.InvalidPartitions: "partitions",
    errors.InvalidReplicationFactor: "replication_factor",
}


@contextmanager
def named_fields(settings: Collection[str]) -> Iterator[None]:
    """Add the field to an error about one. `settings` are the names of the settings that the request sets."""
    try:
        yield
    except TidemillError as error:
        field = refused_field(error, settings)
        if not field:
            raise
        raise ApiProblem(status_of_error(error), str(error), field) from error


def refused_field(error: TidemillError, settings: Collection[str]) -> str:
    """The field that an error is about; empty if it is about none."""
    if isinstance(error, errors.InvalidConfig):
        named = next((each for each in settings if _is_about(str(error), each)), "")
        return f"{CONFIG}.{named}" if named else CONFIG
    return _FIELDS.get(type(error), "")


def _is_about(text: str, setting: str) -> bool:
    """Whether an error is about a setting, as `model/topic_settings.py` writes it: its name begins the reason."""
    reasons = text.split(": ")
    return any(
        each.startswith((f"{setting}=", f"{setting} ")) or each.endswith(f"setting {setting!r}") for each in reasons
    )
