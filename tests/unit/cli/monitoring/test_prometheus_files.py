"""The YAML of rules has the meaning of the tables."""

import yaml

from tidemill.cli.monitoring.prometheus_files import rules_text
from tidemill.cli.monitoring.rules import ALERTS, RECORDINGS, Alert, RecordedSeries


def test_rules_are_what_the_tables_say() -> None:
    recordings, alerts = yaml.safe_load(rules_text(RECORDINGS, ALERTS))["groups"]
    assert [RecordedSeries(each["record"], each["expr"]) for each in recordings["rules"]] == list(RECORDINGS)
    found = [
        Alert(each["alert"], each["expr"], each["for"], each["labels"]["severity"], **each["annotations"])
        for each in alerts["rules"]
    ]
    assert found == list(ALERTS)


def test_texts_are_quoted() -> None:
    hostile = 'a: "b" \\ # {{ $x }}\nc'
    text = rules_text((), (Alert("A", hostile, "1m", "warning", hostile, hostile, hostile),))
    assert yaml.safe_load(text)["groups"][1]["rules"][0]["expr"] == hostile


def test_names_are_distinct_and_sentences_end() -> None:
    names = [each.name for each in ALERTS] + [each.record for each in RECORDINGS]
    assert len(set(names)) == len(names)
    assert all(each.name.startswith("Tidemill") for each in ALERTS)
    assert all(each.description.endswith(".") and each.next_step.endswith(".") for each in ALERTS)
    assert all(not each.summary.endswith(".") for each in ALERTS)
