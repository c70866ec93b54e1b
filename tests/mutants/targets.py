"""Which modules are mutated, and which tests run then. Modules are chosen by pattern, so most moves need no edit."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

PACKAGE = "tidemill"
TESTS: dict[str, tuple[str, ...]] = {
    "client": ("tests/unit/client/parallel", "tests/integration/test_parallel.py"),
    "groups": ("tests/unit/groups", "tests/scenarios/test_groups.py"),
    "pipelines": ("tests/unit/pipelines", "tests/unit/cli/test_pipeline.py"),
    "records": ("tests/unit/records", "tests/fuzz/test_batches.py"),
    "sql": ("tests/unit/sql", "tests/hostile/test_sql_attacks.py"),
    "streams": ("tests/unit/streams", "tests/simulation/test_replicas.py", "tests/contract/test_stream_log.py"),
    "timelines": ("tests/unit/timelines", "tests/contract/test_timeline_store.py"),
    "transactions": ("tests/unit/transactions", "tests/scenarios/test_transactions.py"),
    "wire": ("tests/unit/wire", "tests/fuzz/test_frames.py"),
    "wire/http": ("tests/unit/servers/http/api",),
}
"""The tests of a package that has more than `tests/unit/<package>`. The longest name counts."""

COMPILED = ("tidemill/records/arrow/", "tidemill/records/header.py")
"""Modules whose values are part of compiled kernels."""


def is_target(module: PurePosixPath) -> bool:
    """Whether a module, by its path below `src`, is mutated: cores, records, wire and the parallel consumer."""
    folders = module.parts[1:-1]
    if module.parts[0] != PACKAGE or module.name == "__init__.py" or "_pb2" in module.name or not folders:
        return False
    return "core" in folders or folders[0] in {"records", "wire"} or folders[:2] == ("client", "parallel")


def package_tests(module: PurePosixPath) -> tuple[str, ...]:
    """Files and folders with the tests of a module's package."""
    folders = module.parts[1:-1]
    names = ["/".join(folders[:count]) for count in range(len(folders), 0, -1)]
    return next((TESTS[name] for name in names if name in TESTS), (f"tests/unit/{folders[0]}",))


def is_compiled(module: PurePosixPath) -> bool:
    """Whether a change of the module changes compiled kernels."""
    return str(module).startswith(COMPILED)


def stages(tests: Iterable[str], module: PurePosixPath, root: Path) -> list[list[str]]:
    """The test files in two runs: first those of the module, which find most mutants, then the others.

    A run loads only its own files. Most mutants need the first run only.
    """
    name = ".".join(module.with_suffix("").parts)
    own: list[str] = []
    others: list[str] = []
    for each in tests:
        place = root / each
        for file in sorted(place.rglob("test_*.py")) if place.is_dir() else [place]:
            is_own = file.stem.startswith(f"test_{module.stem}") or name in file.read_text()
            (own if is_own else others).append(str(file.relative_to(root)))
    return [files for files in (own, others) if files]
