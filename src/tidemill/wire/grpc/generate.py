"""Generates the messages and stubs of the schemas in this folder: `make proto`.

The generated files are committed, so that users need no protoc. Run this after every change of a schema. The generator
writes absolute imports of a top-level module, which this script turns into imports of this package.

The generator also writes checks that reject every protobuf and grpcio older than itself. This script removes them. The
ranges in pyproject.toml define the supported versions, and `make lowest` runs the tests with the lowest of them.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SCHEMAS = ("broker.proto", "timeline.proto")

MESSAGE_CHECKS = (
    r"# Protobuf Python Version: .*\n",
    r"from google\.protobuf import runtime_version as _runtime_version\n",
    r"_runtime_version\.ValidateProtobufRuntimeVersion\(\n(?:    .*\n)+\)\n",
)
STUB_CHECKS = (
    r"import warnings\n",
    r"GRPC_GENERATED_VERSION = .*\n(?:.*\n)*?    raise RuntimeError\(\n(?:        .*\n)+    \)\n\n\n",
)


def generate(target: Path) -> None:
    """Write the Python code of every schema into a folder."""
    from grpc_tools import protoc  # noqa: PLC0415 -- a development tool, absent in an installed package

    for schema in SCHEMAS:
        name = schema.removesuffix(".proto")
        options = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{FOLDER}", *options, schema]) != 0:
            sys.exit(f"protoc failed for {schema}; see its output above")
        messages, stubs = target / f"{name}_pb2.py", target / f"{name}_pb2_grpc.py"
        absolute = f"import {name}_pb2 as"
        messages.write_text(without(MESSAGE_CHECKS, messages.read_text()))
        text = without(STUB_CHECKS, stubs.read_text())
        stubs.write_text(text.replace(absolute, f"from tidemill.wire.grpc {absolute}"))


def without(patterns: tuple[str, ...], text: str) -> str:
    """Return the text without the one match of each pattern."""
    for pattern in patterns:
        text, count = re.subn(pattern, "", text)
        if count != 1:
            sys.exit(
                f"the generated code has {count} matches of {pattern!r}, not 1; adapt the patterns to the generator"
            )
    return text


if __name__ == "__main__":
    generate(FOLDER)
