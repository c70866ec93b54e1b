"""What `tidemill doctor` finds about logins, certificates and engines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.app.certificates import create_certificate
from tidemill.app.security_inspection import SecurityFinding, security_findings
from tidemill.settings import load

NOW = datetime(2026, 11, 18, tzinfo=UTC)
OFF = {"grpc": "none", "http": "none"}


def findings(flags: dict[str, str], **broker: str) -> list[SecurityFinding]:
    return security_findings(
        load({**OFF, **flags}, broker={name.replace("_", "."): v for name, v in broker.items()}), NOW
    )


def states(found: list[SecurityFinding]) -> list[tuple[str, str]]:
    return [(each.check, each.state) for each in found]


def test_logins() -> None:
    assert states(findings({})) == [("logins", "fine")]
    (wrong,) = findings({"kafka": "0.0.0.0:9092"})
    assert (wrong.state, "allow.anonymous=true" in wrong.found) == ("wrong", True)
    (note,) = findings({"kafka": "0.0.0.0:9092"}, allow_anonymous="true")
    assert (note.state, note.found) == ("note", "everyone may connect to kafka 0.0.0.0:9092")
    (fine,) = findings({}, listeners="SASL_PLAINTEXT://127.0.0.1:9092")
    assert (fine.state, fine.found) == ("fine", "clients must log in")


@pytest.mark.parametrize(
    ("days_left", "state", "said"),
    [(100, "fine", "valid until"), (29, "note", "in 29 days"), (0, "wrong", "expired on")],
)
def test_a_certificate_that_ends(tmp_path: Path, days_left: int, state: str, said: str) -> None:
    made = create_certificate(tmp_path, "broker", ("localhost",), days=200, now=NOW - timedelta(days=200 - days_left))
    flags = {"http": "127.0.0.1:1"}  # has the same certificate, which is listed once
    found = findings(flags, listeners="SASL_SSL://127.0.0.1:9092", ssl_keystore_location=str(made.path))
    assert states(found) == [("logins", "fine"), (f"certificate {made.path}", state)]
    assert said in found[1].found


def test_a_certificate_that_is_missing_or_damaged(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    for path in (damaged, tmp_path / "missing.pem"):
        found = findings({}, listeners="SASL_SSL://127.0.0.1:9092", ssl_keystore_location=str(path))
        assert states(found) == [("logins", "fine"), ("certificate of SASL_SSL", "wrong")]
        assert str(path) in found[1].found
    (_, found_without) = findings({}, listeners="SASL_SSL://127.0.0.1:9092")
    assert "has no certificate" in found_without.found


def test_engines_that_are_not_verified() -> None:
    found = findings({"coordination": "etcd://me:geheim@db:2379", "timelines": "postgresql://me:geheim@db/x"})
    assert states(found)[1:] == [("TLS to coordination", "note"), ("TLS to timelines", "note")]
    assert not [each for each in found if "geheim" in str(each)]
