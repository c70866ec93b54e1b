"""Writes the rules and a sample configuration for Prometheus as YAML.

The files have few shapes, so no library is needed. Texts are written in double quotes, as JSON writes them.
"""

import json
from collections.abc import Sequence

from tidemill.cli.monitoring.rules import JOB, Alert, RecordedSeries

RULES_FILE = "tidemill-rules.yml"
RECORDINGS_GROUP, ALERTS_GROUP = "tidemill-recordings", "tidemill-alerts"


def rules_text(recordings: Sequence[RecordedSeries], alerts: Sequence[Alert]) -> str:
    """The rule file."""
    lines = ["groups:", f"  - name: {RECORDINGS_GROUP}", "    rules:"]
    for each in recordings:
        lines += [f"      - record: {each.record}", f"        expr: {_text(each.expr)}"]
    lines += [f"  - name: {ALERTS_GROUP}", "    rules:"]
    for alert in alerts:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_text(alert.expr)}",
            f"        for: {alert.lasting}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_text(alert.summary)}",
            f"          description: {_text(alert.description)}",
            f"          next_step: {_text(alert.next_step)}",
        ]
    return "\n".join(lines) + "\n"


def scrape_text(targets: Sequence[str]) -> str:
    """A configuration of Prometheus that scrapes these brokers and reads the rule file next to it."""
    return f"""global:
  scrape_interval: 15s
  evaluation_interval: 15s

rule_files:
  - {RULES_FILE}

scrape_configs:
  - job_name: {JOB}
    static_configs:
      - targets: [{", ".join(map(_text, targets))}]
"""


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
