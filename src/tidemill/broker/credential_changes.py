"""Makes the credentials of a password on the side of the client, for AlterUserScramCredentials.

The password is stretched here and never sent. That takes milliseconds, so it is called in a thread.
"""

from collections.abc import Callable, Sequence

from tidemill.client.kafka.users import ScramDeletion, ScramUpsertion
from tidemill.security.core.scram import BY_LABEL, DEFAULT_SALT_BYTES, salted_password


def password_changes(
    name: str,
    password: str,
    mechanisms: Sequence[str],
    iterations: int,
    token_bytes: Callable[[int], bytes],
    *,
    dropped: Sequence[str] = (),
) -> list[ScramUpsertion | ScramDeletion]:
    """New credentials of a user for these mechanisms. Those of `dropped` mechanisms are removed."""
    changes: list[ScramUpsertion | ScramDeletion] = [*removals(name, dropped)]
    for each in (BY_LABEL[label] for label in mechanisms):
        salt = token_bytes(DEFAULT_SALT_BYTES)
        salted = salted_password(each, password, salt, iterations)
        changes.append(ScramUpsertion(name, each.number, iterations, salt, salted))
    return changes


def removals(name: str, mechanisms: Sequence[str]) -> list[ScramDeletion]:
    """Remove credentials of a user; without the last one, the user is removed."""
    return [ScramDeletion(name, BY_LABEL[label].number) for label in mechanisms]
