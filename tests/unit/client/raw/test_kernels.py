"""Which twin is used."""

import pytest

from tidemill.client.raw.errors import InvalidOption
from tidemill.client.raw.kernels import RECORDS_BY_REFERENCE, KernelChoice, chosen_kernels
from tidemill.records.arrow import kernels, twins


def test_the_fastest_that_is_installed_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels().name == "numba"
    monkeypatch.setattr(twins, "_fastest", twins._fastest.__wrapped__)  # it looks once
    monkeypatch.setattr(twins, "find_spec", lambda name: None)
    assert kernels().name == "python"


@pytest.mark.parametrize("name", ["python", "numba"])
def test_a_twin_can_be_asked_for(name: str) -> None:
    assert kernels(name).name == name
    assert chosen_kernels({"TIDEMILL_KERNELS": name}).name == name


def test_the_environment_may_say_nothing() -> None:
    assert chosen_kernels({}).name == chosen_kernels({"TIDEMILL_KERNELS": ""}).name == kernels().name


def test_a_wrong_name_is_told_with_the_right_ones() -> None:
    with pytest.raises(
        InvalidOption, match="TIDEMILL_KERNELS: there are no kernels 'cuda'; choose one of numba, python"
    ):
        chosen_kernels({"TIDEMILL_KERNELS": "cuda"})


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError("cannot cache function 'read'"), "cannot cache function 'read'; set NUMBA_CACHE_DIR to a folder"),
        (ImportError("No module named 'numba'"), "TIDEMILL_KERNELS: No module named 'numba'; install tidemill"),
    ],
)
def test_kernels_that_cannot_be_had_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fail(name: str | None) -> None:
        raise error

    monkeypatch.setattr("tidemill.client.raw.kernels.kernels", fail)
    with pytest.raises(InvalidOption, match=line):
        chosen_kernels({"TIDEMILL_KERNELS": "numba"})


def test_a_process_with_little_to_do_does_not_load_the_fastest() -> None:
    choice = KernelChoice(lambda: False)
    assert choice.of(RECORDS_BY_REFERENCE, {}).name == "python"
    assert choice.of(1, {}).name == "numba"
    assert KernelChoice(lambda: True).of(1, {}).name == "numba"
    assert KernelChoice(lambda: False).of(10**9, {"TIDEMILL_KERNELS": "python"}).name == "python"
