"""Checks of a call, as the authorization tables write them."""

from tidemill.security.core.api_rights import ApiRight, ApiRights, api_rights
from tidemill.security.core.resources import Operation, ResourceType


def test_a_check_is_a_pair_or_has_a_note() -> None:
    noted = ApiRight(Operation.DESCRIBE, ResourceType.TOPIC, "if the call names one")
    assert api_rights((Operation.READ, ResourceType.GROUP), noted) == ApiRights(
        (ApiRight(Operation.READ, ResourceType.GROUP), noted)
    )


def test_a_call_without_checks_says_why() -> None:
    assert api_rights(note="open to everyone") == ApiRights((), "open to everyone")
