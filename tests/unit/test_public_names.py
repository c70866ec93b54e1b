"""The names that users import, and the cost of the import."""

import inspect
import subprocess
import sys

import pytest

import tidemill
import tidemill.testing

HEAVY = ("grpc", "starlette", "uvicorn", "confluent_kafka", "kio", "structlog", "rich", "asyncio", "prometheus_client")


@pytest.mark.parametrize("module", [tidemill, tidemill.testing])
def test_every_public_name_is_there(module: object) -> None:
    for name in getattr(module, "__all__"):  # noqa: B009 -- the attribute is what is tested
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="Nothing"):
        _ = module.Nothing  # type: ignore[attr-defined]  # it is not there


def test_a_name_that_is_mistyped_is_known_to_type_checkers_and_to_people() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Timelin'") as caught:
        _ = tidemill.Timelin  # type: ignore[attr-defined]  # mypy says so, or this comment would be one too many
    assert (caught.value.name, caught.value.obj) == ("Timelin", tidemill)  # what Python makes suggestions from
    with pytest.raises(AttributeError, match="no attribute 'Brokr'"):
        _ = tidemill.testing.Brokr  # type: ignore[attr-defined]  # the same


@pytest.mark.parametrize("name", sorted(set(tidemill.__all__) - {"__version__"}))
def test_every_public_name_says_what_it_is_for(name: str) -> None:
    public = getattr(tidemill, name)
    assert public.__doc__
    for attribute, value in vars(public).items():
        if inspect.isfunction(value) and not attribute.startswith("_"):
            assert value.__doc__, attribute


def test_all_names_are_listed() -> None:
    assert {"AsyncTimeline", "Halted", "Message", "ParallelConsumer", "Retry", "Timeline"} <= set(tidemill.__all__)
    assert {"AsyncLease", "Lease", "StaleLease", "TidemillError", "TimelineError"} <= set(tidemill.__all__)
    assert set(tidemill.__all__) <= set(dir(tidemill))
    assert set(tidemill._MODULES) < set(tidemill.__all__)


@pytest.mark.parametrize("statement", ["import tidemill", "import tidemill.testing.plugin"])
def test_importing_loads_nothing_heavy(statement: str) -> None:
    program = f"import sys; import pytest; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not set(HEAVY) & set(loaded)


GRPC_FIRST = """
import importlib.abc, os, sys
class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "grpc":
            print(os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
os.environ.pop("GRPC_ENABLE_FORK_SUPPORT", None)
sys.meta_path.insert(0, Watch())
import tidemill
tidemill.{name}
"""


@pytest.mark.parametrize("name", ["Consumer", "TopicProducer", "Timeline", "testing"])
def test_forks_are_left_alone_before_grpc_is_loaded(name: str) -> None:
    program = (
        GRPC_FIRST.format(name=name)
        if name != "testing"
        else GRPC_FIRST.format(name="Timeline").replace(
            "import tidemill\n", "import tidemill\nimport tidemill.testing.broker\n"
        )
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "false\n"


def test_the_help_loads_nothing_heavy() -> None:
    program = "import sys; from tidemill.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "serve" in result.stdout
    assert not {*HEAVY, "typer"} & set(result.stderr.split())
