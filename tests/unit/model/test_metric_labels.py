"""Labels of the settings: well-formed, bounded, and different from those of the metrics."""

import pytest

from tidemill.model.errors import InvalidConfig
from tidemill.model.metric_labels import LABELS_MAX, NAME_CHARS_MAX, USED_NAMES, VALUE_CHARS_MAX, parse_labels


def test_labels_are_read_in_order() -> None:
    assert parse_labels("env=prod, team = mail ,zone=a=b") == (("env", "prod"), ("team", "mail"), ("zone", "a=b"))
    assert parse_labels("") == ()
    assert parse_labels("city=Zürich") == (("city", "Zürich"),)


def test_the_largest_labels_are_accepted() -> None:
    pairs = [f"l{number}={'v' * VALUE_CHARS_MAX}" for number in range(LABELS_MAX - 1)]
    assert len(parse_labels(",".join([*pairs, f"{'n' * NAME_CHARS_MAX}=v"]))) == LABELS_MAX


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("env", "'env' is not name=value"),
        ("=prod", "is not a label name"),
        ("1a=b", "'1a' is not a label name"),
        ("é=b", "is not a label name"),
        ("a-b=c", "'a-b' is not a label name"),
        (f"{'n' * (NAME_CHARS_MAX + 1)}=v", f"at most {NAME_CHARS_MAX}"),
        ("__name__=x", "label __name__ is reserved"),
        ("topic=x", "label topic is used by metrics of the broker; choose another name, such as my_topic"),
        ("cluster=x", "label cluster is used"),
        ("le=x", "label le is used"),
        ("env=a,env=b", "label env is given twice"),
        ("env=", "the value of label env must have 1 to"),
        (f"env={'v' * (VALUE_CHARS_MAX + 1)}", f"1 to {VALUE_CHARS_MAX} characters"),
        ("env=a\nb", "cannot be printed"),
        ("env=a\x00", "cannot be printed"),
        (",".join(f"l{number}=v" for number in range(LABELS_MAX + 1)), f"at most {LABELS_MAX}"),
    ],
)
def test_other_labels_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        parse_labels(text)


def test_every_used_name_is_refused() -> None:
    for name in USED_NAMES:
        with pytest.raises(InvalidConfig, match=f"label {name} is used"):
            parse_labels(f"{name}=v")
