"""Which modules are mutated, and which tests run then. Modules are chosen by pattern, so most moves need no edit."""

from collections.abc import Iterable
from enum import Enum, auto
from pathlib import Path, PurePosixPath

from tests.mutants.mutations import MODULE

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
    "servers/http": ("tests/unit/servers/http",),
    "wire/http": ("tests/unit/servers/http/api",),
}
"""The tests of a package that has more than `tests/unit/<package>`. The longest name counts."""

KERNELS = "tidemill/records/arrow/compiled"
CALLERS_OF_KERNELS = PurePosixPath("tidemill/records/arrow/numba_kernels.py")
SHARED_BY_KERNELS = tuple(
    PurePosixPath(f"tidemill/records/{name}.py")
    for name in ("arrow/compiled/memory", "arrow/schema", "arrow/selection", "arrow/table", "header")
)
"""Modules whose functions or values are compiled into the kernels of other files."""


class Kernels(Enum):
    """Which compiled kernels a mutant changes."""

    NONE = auto()
    OF_ITS_FILE = auto()
    ALL = auto()


def is_target(module: PurePosixPath) -> bool:
    """Whether a module, by its path below `src`, is mutated: cores, records, wire and the parallel consumer."""
    folders = module.parts[1:-1]
    if module.parts[0] != PACKAGE or module.name == "__init__.py" or "_pb2" in module.name or not folders:
        return False
    return "core" in folders or folders[0] in {"records", "wire"} or folders[:2] == ("client", "parallel")


def is_marked(module: PurePosixPath) -> bool:
    """Whether the statements of a module can be marked: those of compiled functions cannot."""
    return is_target(module) and str(module.parent) != KERNELS


def package_tests(module: PurePosixPath) -> tuple[str, ...]:
    """Files and folders with the tests of a module's package."""
    folders = module.parts[1:-1]
    names = ["/".join(folders[:count]) for count in range(len(folders), 0, -1)]
    return next((TESTS[name] for name in names if name in TESTS), (f"tests/unit/{folders[0]}",))


def changed_kernels(module: PurePosixPath, function: str) -> Kernels:
    """Which kernels have to be compiled again after a change in a function."""
    is_kernel = str(module.parent) == KERNELS
    if module in SHARED_BY_KERNELS and (is_kernel or function == MODULE):
        return Kernels.ALL
    return Kernels.OF_ITS_FILE if is_kernel else Kernels.NONE


def files_of(tests: Iterable[str], root: Path) -> list[str]:
    """The files of an entry of `TESTS`."""
    places = [root / each for each in tests]
    files = [file for place in places for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])]
    return [str(file.relative_to(root)) for file in files]


def is_own(file: Path, module: PurePosixPath) -> bool:
    """Whether a test file is about a module: it has its name, or it imports it."""
    name = ".".join(module.with_suffix("").parts)
    return file.stem.startswith(f"test_{module.stem}") or name in file.read_text()
