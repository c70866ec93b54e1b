"""Text of users in pages."""

from tidemill.servers.http.console.rendering import visible, with_query


def test_a_text_is_escaped_and_its_unseen_characters_are_named() -> None:
    assert visible("<b>\u202e&") == '&lt;b&gt;<b class="hidden-char">U+202E</b>&amp;'
    assert visible("") == ""


def test_a_query_changes_some_fields_and_keeps_the_others() -> None:
    assert with_query({"key": "a b", "position": "0:1"}, position=None, rows=25) == "?key=a+b&rows=25"
