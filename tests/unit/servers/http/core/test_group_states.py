"""What the states of groups mean, in sentences."""

import pytest

from tidemill.servers.http.core.group_states import (
    DEAD,
    EMPTY,
    EMPTY_SHARE,
    EXPLANATIONS,
    NEVER_COMMITTED,
    OFFSETS_ONLY,
    explanation_of,
)


@pytest.mark.parametrize(
    ("protocol", "has_offsets", "expected"),
    [("consumer", True, EMPTY), ("", True, OFFSETS_ONLY), ("consumer", False, NEVER_COMMITTED)],
)
def test_an_empty_group_is_explained_by_its_offsets(protocol: str, has_offsets: bool, expected: str) -> None:
    for kind in ("classic", "consumer"):
        assert explanation_of(kind, "Empty", protocol=protocol, has_offsets=has_offsets) == expected


def test_an_empty_share_group_has_no_offsets_to_explain() -> None:
    assert explanation_of("share", "Empty", protocol="share", has_offsets=False) == EMPTY_SHARE


def test_states_with_members_are_explained_by_the_kind_of_group() -> None:
    for (kind, state), text in EXPLANATIONS.items():
        assert explanation_of(kind, state, protocol="consumer", has_offsets=False) == text
    assert explanation_of("classic", "Dead", protocol="", has_offsets=True) == DEAD
