"""Lists and changes the SCRAM credentials of users. No password and no salt is ever returned by a broker."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill.client.kafka.apis import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import KafkaError, of_code


class DescribedUser(NamedTuple):
    """A user, and the iterations of its credential of each mechanism (Kafka's numbers)."""

    name: str
    iterations: dict[int, int]


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A new credential of a user. The password is stretched by the caller and never sent."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A credential to remove."""

    name: str
    mechanism: int


def describe(router: RequestRouter) -> list[DescribedUser]:
    """Every user that logs in by SCRAM, by name."""

    def ask() -> list[DescribedUser]:
        response = router.anyone().call(plain(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        found = (
            DescribedUser(each.user, {int(info.mechanism): int(info.iterations) for info in each.credential_infos})
            for each in response.results
            if not each.error_code
        )
        return sorted(found)

    return router.persist("list users", ask)


def alter(router: RequestRouter, changes: Sequence[ScramUpsertion | ScramDeletion]) -> dict[str, KafkaError | None]:
    """Change credentials. Returns the error of each user, or None."""
    fields = {
        "deletions": [
            {"name": each.name, "mechanism": each.mechanism} for each in changes if isinstance(each, ScramDeletion)
        ],
        "upsertions": [
            {
                "name": each.name,
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "salt": each.salt,
                "salted_password": each.salted_password,
            }
            for each in changes
            if isinstance(each, ScramUpsertion)
        ],
    }

    def ask() -> dict[str, KafkaError | None]:
        response = router.anyone().call(plain(ALTER_USER_SCRAM_CREDENTIALS, fields)).message()
        return {
            each.user: of_code(each.error_code, each.error_message or "") if each.error_code else None
            for each in response.results
        }

    return router.persist("change users", ask)
