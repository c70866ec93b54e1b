"""The queries of `tidemill sql --diagnose`: lists them, prints one, and reports what it found."""

from tidemill.cli.errors import WrongUse
from tidemill.cli.output import remark, say, show, show_json
from tidemill.sql.core.diagnostics import DIAGNOSES, MINUTES_MAX, Diagnosis


def list_diagnoses(*, as_json: bool) -> None:
    """Print the names of all diagnoses and what each one finds."""
    rows = [{"name": each.name, "finds": each.doc, "minutes": each.minutes or None} for each in DIAGNOSES.values()]
    show(rows, ["name", "finds"], as_json=as_json, empty="")
    if not as_json:
        remark("run one with: tidemill sql --diagnose NAME; print its query with: tidemill sql --diagnose NAME --show")


def diagnosis_named(name: str) -> Diagnosis:
    """Return a diagnosis. WrongUse lists the names."""
    found = DIAGNOSES.get(name)
    if found is None:
        raise WrongUse(f"{name[:80]!r} is no diagnosis; use one of {', '.join(DIAGNOSES)}")
    return found


def query_of(diagnosis: Diagnosis, minutes: int | None) -> str:
    """Return the query, for other minutes than its own if they are given."""
    if minutes is not None and not diagnosis.minutes:
        raise WrongUse(f"--minutes does not apply to {diagnosis.name}")
    if minutes is not None and not 0 <= minutes <= MINUTES_MAX:
        raise WrongUse(f"--minutes must be from 0 to {MINUTES_MAX:,}, not {minutes}")
    return diagnosis.sql(minutes)


def show_query(diagnosis: Diagnosis, query: str, *, as_json: bool) -> None:
    """Print the query of a diagnosis, to adapt it."""
    if as_json:
        show_json({"name": diagnosis.name, "query": query})
    else:
        say(query)
