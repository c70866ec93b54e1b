"""Which modules are mutated, by which tests, and which mutants are named equivalent."""

import re
from pathlib import Path, PurePosixPath

import pytest
from tests.mutants.mutations import MODULE, mutations
from tests.mutants.run import EQUIVALENT, Report, equivalent_keys
from tests.mutants.targets import (
    KERNELS,
    SHARED_BY_KERNELS,
    TESTS,
    Kernels,
    changed_kernels,
    files_of,
    is_own,
    is_target,
    package_tests,
)
from tests.mutants.tree import ROOT, Mutant

SOURCE = ROOT / "src"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("tidemill/groups/core/records.py", True),
        ("tidemill/any/package/core/part.py", True),
        ("tidemill/records/arrow/compiled/read.py", True),
        ("tidemill/wire/kafka/produce.py", True),
        ("tidemill/client/parallel/work.py", True),
        ("tidemill/wire/grpc/broker_pb2.py", False),
        ("tidemill/wire/grpc/broker_pb2_grpc.py", False),
        ("tidemill/groups/core/__init__.py", False),
        ("tidemill/groups/coordinator.py", False),
        ("tidemill/client/kafka/client.py", False),
        ("tidemill/settings.py", False),
        ("another/groups/core/records.py", False),
    ],
)
def test_modules_are_chosen_by_pattern(module: str, expected: bool) -> None:
    assert is_target(PurePosixPath(module)) is expected


def test_every_chosen_module_has_tests() -> None:
    modules = [PurePosixPath(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py")]
    chosen = [module for module in modules if is_target(module)]
    unused = {name for name in TESTS if not any(str(each).startswith(f"tidemill/{name}/") for each in chosen)}
    assert not unused, "the table names a package that has no such module"
    missing = {place for module in chosen for place in package_tests(module) if not (ROOT / place).exists()}
    assert not missing


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("tidemill/wire/kafka/produce.py", TESTS["wire"]),
        ("tidemill/wire/http/groups.py", TESTS["wire/http"]),
        ("tidemill/servers/http/core/cookies.py", TESTS["servers/http"]),
        ("tidemill/clocks/core/doubt.py", ("tests/unit/clocks",)),
    ],
)
def test_the_longest_name_of_a_package_decides_the_tests(module: str, tests: tuple[str, ...]) -> None:
    assert package_tests(PurePosixPath(module)) == tests


def test_a_test_file_is_about_a_module_whose_name_it_has_or_contains(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    for name, text in {"test_a.py": "", "test_b.py": "import tidemill.wire.schema", "other.py": ""}.items():
        (tmp_path / "unit" / name).write_text(text)
    (tmp_path / "unit" / "test_schema_limits.py").touch()
    (tmp_path / "test_c.py").write_text("from tidemill.wire.schema import build")
    files = files_of(("unit", "test_c.py"), tmp_path)
    assert files == ["unit/test_a.py", "unit/test_b.py", "unit/test_schema_limits.py", "test_c.py"]
    own = [file for file in files if is_own(tmp_path / file, PurePosixPath("tidemill/wire/schema.py"))]
    assert own == ["unit/test_b.py", "unit/test_schema_limits.py", "test_c.py"]


def test_kernels_are_compiled_again_when_what_they_contain_changes() -> None:
    kernels = list((SOURCE / KERNELS).glob("*.py"))
    names = {name for file in kernels for name in re.findall(r"^from (tidemill\S+)", file.read_text(), re.MULTILINE)}
    imported = {PurePosixPath(name.replace(".", "/") + ".py") for name in names}
    assert imported == set(SHARED_BY_KERNELS)
    assert {changed_kernels(module, MODULE) for module in imported} == {Kernels.ALL}
    assert changed_kernels(PurePosixPath(KERNELS, "memory.py"), "varint") is Kernels.ALL
    assert changed_kernels(PurePosixPath(KERNELS, "scan.py"), "scan") is Kernels.OF_ITS_FILE
    assert changed_kernels(PurePosixPath("tidemill/records/header.py"), "read_header") is Kernels.NONE
    assert changed_kernels(PurePosixPath("tidemill/records/read.py"), MODULE) is Kernels.NONE


def test_equivalent_mutants_are_named_with_a_reason() -> None:
    text = "# a comment\n\ntidemill/a.py::f  x = '#' -> y  # the reason\n"
    assert equivalent_keys(text) == {"tidemill/a.py::f  x = '#' -> y": "the reason"}
    with pytest.raises(SystemExit, match=r"equivalent\.txt:1 has no reason"):
        equivalent_keys("tidemill/a.py::f  x -> y\n")
    assert all(" -> " in key and "::" in key for key in equivalent_keys(EQUIVALENT.read_text()))


def test_the_report_leaves_equivalent_mutants_out() -> None:
    report = Report(seed=3, killed=19, timed_out=2, equivalent=5, survivors=["one"])
    assert report.percent == 95.0
    assert report.summary() == ("killed 19 of 20 (95.0 %); 2 of them by the time limit, 5 equivalent left out, seed 3")
    assert Report(seed=3).percent == 100.0


def test_a_mutant_is_named_without_its_line() -> None:
    [first, second] = (
        Mutant(PurePosixPath("tidemill/a.py"), mutations(text)[0]) for text in ("x = y < z", "\nx = y < z")
    )
    assert first.key == second.key == "tidemill/a.py::<module>  x = y < z -> x = y <= z"
    assert str(second) == "src/tidemill/a.py:2  x = y < z -> x = y <= z  (in <module>)"
