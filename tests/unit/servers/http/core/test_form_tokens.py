"""A form token is valid for one purpose in one browser; a login page can be used for a while."""

import pytest

from tidemill.servers.http.core.form_tokens import ATTEMPT_S, LoginAttempt, form_token, is_form_token, parse_attempt

KEY = b"k" * 32
RANDOM = "r" * 43


def test_only_the_right_token_is_accepted() -> None:
    token = form_token(KEY, "login", "held")
    assert is_form_token(KEY, "login", "held", token)
    for purpose, held, given in (
        ("session", "held", token),
        ("login", "other", token),
        ("login", "held", token[:-1]),
        ("login", "held", ""),
        ("login", "held", None),
        ("login", "held", "\ud800"),
    ):
        assert not is_form_token(KEY, purpose, held, given)
    assert not is_form_token(b"x" * 32, "login", "held", token)


def test_an_attempt_is_read_back() -> None:
    attempt = LoginAttempt(100, RANDOM)
    assert parse_attempt(str(attempt), 100.5) == attempt
    assert parse_attempt(str(attempt), 100 + ATTEMPT_S - 1) == attempt
    assert parse_attempt(str(attempt), 100 + ATTEMPT_S) is None
    assert parse_attempt(str(attempt), 99) is None  # of an earlier run of the broker, whose clock began elsewhere


@pytest.mark.parametrize(
    "text",
    [None, "", "100", f"100.{RANDOM}x", f".{RANDOM}", f"-1.{RANDOM}", f"{'9' * 13}.{RANDOM}", f"\u0661\u0660.{RANDOM}"],
)
def test_an_invalid_attempt_is_rejected(text: str | None) -> None:
    assert parse_attempt(text, 100) is None
