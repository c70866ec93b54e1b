"""Lists and changes the quotas of clients. Names of entities and of quotas are Kafka's own."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidemill.client.kafka.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import KafkaError, of_code

QuotaOwner = tuple[tuple[str, str | None], ...]
"""Whom quotas are for: type and name of each part; the name None is the default."""


class DescribedQuotas(NamedTuple):
    """The quotas of one owner."""

    owner: QuotaOwner
    quotas: dict[str, float]


class QuotaChange(NamedTuple):
    """New values for an owner; None removes a quota."""

    owner: QuotaOwner
    quotas: Mapping[str, float | None]


def describe(router: RequestRouter) -> list[DescribedQuotas]:
    """The quotas of every owner."""

    def ask() -> list[DescribedQuotas]:
        response = router.anyone().call(plain(DESCRIBE_CLIENT_QUOTAS, {"components": (), "strict": False})).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        return [
            DescribedQuotas(
                tuple((part.entity_type, part.entity_name) for part in each.entity),
                {value.key: float(value.value) for value in each.values},
            )
            for each in response.entries or ()
        ]

    return router.persist("list quotas", ask)


def alter(router: RequestRouter, changes: Sequence[QuotaChange], *, dry_run: bool) -> list[KafkaError | None]:
    """Change quotas. Returns the error of each owner, or None, in their order."""
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in change.owner],
            "ops": [
                {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
                for key, value in change.quotas.items()
            ],
        }
        for change in changes
    ]

    def send() -> list[KafkaError | None]:
        request = plain(ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": dry_run})
        response = router.anyone().call(request).message()
        return [
            of_code(each.error_code, each.error_message or "") if each.error_code else None for each in response.entries
        ]

    return router.persist("alter quotas", send)
