"""The rules of `ssl.principal.mapping.rules`: they turn the subject of a certificate into a user name.

`RULE:pattern/replacement/[LU]` applies when the pattern matches the whole name; `$1` in the replacement is a group of
the pattern, and L or U changes the case. `DEFAULT` keeps the name. The first rule that applies counts.
"""

import re
from typing import NamedTuple

from tidemill.model.errors import InvalidConfig, SaslAuthenticationFailed
from tidemill.security.core.principal import is_name

SUBJECT_CHARS_MAX = 1024
"""Longer subjects are refused: the time of a pattern may grow fast with the length of the text."""
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_REFERENCE = re.compile(r"\$(\d)")


class PrincipalRule(NamedTuple):
    """One rule; `pattern` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Parse the setting; InvalidConfig says which part is wrong."""
    rules: list[PrincipalRule] = []
    position = 0
    rest = text.strip()
    while position < len(rest):
        found = _RULE.match(rest, position)
        if found is None:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: {rest[position : position + 60]!r} is neither DEFAULT nor "
                "RULE:pattern/replacement/[LU]"
            )
        rules.append(_rule(found))
        position = found.end()
        separator = re.compile(r"\s*,?\s*").match(rest, position)
        position = separator.end() if separator else position
    return tuple(rules) or (PrincipalRule(None),)


def _rule(found: "re.Match[str]") -> PrincipalRule:
    if found[1]:
        return PrincipalRule(None)
    try:
        pattern = re.compile(found[2].replace(r"\/", "/"))
    except re.error as error:
        raise InvalidConfig(
            f"ssl.principal.mapping.rules: the pattern {found[2][:60]!r} is not valid: {error}"
        ) from None
    for reference in _REFERENCE.findall(found[3]):
        if int(reference) > pattern.groups:
            raise InvalidConfig(f"ssl.principal.mapping.rules: {found[3][:60]!r} uses ${reference}, which has no group")
    return PrincipalRule(pattern, found[3].replace(r"\/", "/"), found[4])


def apply_rules(rules: tuple[PrincipalRule, ...], subject: str) -> str:
    """The user name of a subject; SaslAuthenticationFailed when no rule applies."""
    if not is_name(subject):
        raise SaslAuthenticationFailed(
            "the subject of the certificate is empty or has characters that are not printable"
        )
    if len(subject) > SUBJECT_CHARS_MAX:
        raise SaslAuthenticationFailed(f"the subject of the certificate is longer than {SUBJECT_CHARS_MAX} characters")
    for rule in rules:
        if rule.pattern is None:
            return subject
        found = rule.pattern.fullmatch(subject)
        if found is not None:
            return _mapped(rule, found)
    raise SaslAuthenticationFailed(f"no rule of ssl.principal.mapping.rules applies to {subject[:100]!r}")


def _mapped(rule: PrincipalRule, found: "re.Match[str]") -> str:
    name = _REFERENCE.sub(lambda reference: found[int(reference[1])] or "", rule.replacement)
    if not name:
        raise SaslAuthenticationFailed("a rule of ssl.principal.mapping.rules makes an empty user name")
    return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
