"""Characters that are not seen, or that change how others are seen, get a name."""

import pytest

from tidemill.servers.http.core.visible_text import TextPart, visible_parts


def joined(text: str) -> str:
    return "".join(f"[{part.text}]" if part.is_name else part.text for part in visible_parts(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("customer-7 é 中", "customer-7 é 中"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("abc\u202etxt.exe", "abc[U+202E]txt.exe"),
        ("\x00a\r\n", "[U+0000]a[U+000D]\n"),
        ("\u200b\u2066", "[U+200B][U+2066]"),
        ("a\u00a0b\u2028", "a[U+00A0]b[U+2028]"),
        ("\U000e0041\x1b[0m", "[U+E0041][U+001B][0m"),
        ("\x7f", "[U+007F]"),
    ],
)
def test_unseen_characters_have_names(text: str, shown: str) -> None:
    assert joined(text) == shown


def test_a_text_that_looks_like_a_name_is_text() -> None:
    assert visible_parts("U+202E") == [TextPart("U+202E", is_name=False)]
