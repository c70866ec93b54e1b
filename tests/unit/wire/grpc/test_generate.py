"""The committed gRPC code is what the schema makes."""

from pathlib import Path

import pytest

from tidemill.wire.grpc.generate import FOLDER, generate


@pytest.mark.parametrize(
    "name", [f"{schema}_pb2{kind}" for schema in ("broker", "timeline") for kind in (".pyi", "_grpc.py")]
)
def test_generated_code_is_fresh(name: str, tmp_path: Path) -> None:
    generate(tmp_path)
    made, kept = (_without_versions(folder / name) for folder in (tmp_path, FOLDER))
    assert made == kept, "run: make proto"


def _without_versions(path: Path) -> list[str]:
    """The lines of the file; which version of the generator wrote them does not matter."""
    return [line for line in path.read_text().splitlines() if "VERSION" not in line]
