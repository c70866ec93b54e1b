"""Generates the messages and stubs of the schemas beside it: `make proto`.

The generated files are committed, so that a user needs no protoc; run this after every change of the schema. The
generator writes absolute imports of a top-level module; they are turned into imports of this package.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SCHEMAS = ("broker.proto", "timeline.proto")


def generate(target: Path) -> None:
    """Write the Python code of every schema into a folder."""
    from grpc_tools import protoc  # noqa: PLC0415 -- a development tool, absent in an installed package

    for schema in SCHEMAS:
        name = schema.removesuffix(".proto")
        options = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{FOLDER}", *options, schema]) != 0:
            sys.exit(f"protoc refused {schema}")
        stubs = target / f"{name}_pb2_grpc.py"
        absolute = f"import {name}_pb2 as"
        stubs.write_text(stubs.read_text().replace(absolute, f"from tidemill.wire.grpc {absolute}"))


if __name__ == "__main__":
    generate(FOLDER)
