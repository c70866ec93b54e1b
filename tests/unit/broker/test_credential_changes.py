"""Credentials that a client makes from a password log in, and do not have the password."""

from tidemill.broker.credential_changes import password_changes, removals
from tidemill.client.kafka.users import ScramDeletion, ScramUpsertion
from tidemill.security.core.scram import BY_NUMBER, credential_from_salted, has_password, salted_password


def test_credentials_belong_to_the_password() -> None:
    made = password_changes("alice", "secret words", ["SCRAM-SHA-256"], 4096, bytes, dropped=["SCRAM-SHA-512"])
    assert made[0] == ScramDeletion("alice", 2)
    change = made[1]
    assert isinstance(change, ScramUpsertion)
    mechanism = BY_NUMBER[change.mechanism]
    credential = credential_from_salted(mechanism, change.salted_password, change.salt, change.iterations)
    assert has_password(credential, salted_password(mechanism, "secret words", change.salt, 4096))
    assert "secret" not in repr(made)


def test_a_user_without_mechanisms_has_nothing_to_remove() -> None:
    assert removals("alice", []) == []
