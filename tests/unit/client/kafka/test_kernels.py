"""Which kernels are used."""

import pytest

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.kernels import RECORDS_BY_REFERENCE, KernelChoice, chosen_kernels
from tidemill.records.arrow import kernels, load_kernels


def test_the_fastest_that_is_installed_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_kernels().name == "numba"
    monkeypatch.setattr(kernels, "_fastest", kernels._fastest.__wrapped__)  # it looks once
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert load_kernels().name == "python"


@pytest.mark.parametrize("name", ["python", "numba"])
def test_kernels_can_be_chosen_by_name(name: str) -> None:
    assert load_kernels(name).name == name
    assert chosen_kernels({"TIDEMILL_KERNELS": name}).name == name


def test_the_environment_may_say_nothing() -> None:
    assert chosen_kernels({}).name == chosen_kernels({"TIDEMILL_KERNELS": ""}).name == load_kernels().name


def test_a_wrong_name_is_reported_with_the_right_ones() -> None:
    with pytest.raises(
        InvalidClientOption, match="TIDEMILL_KERNELS: there are no kernels 'cuda'; choose one of numba, python"
    ):
        chosen_kernels({"TIDEMILL_KERNELS": "cuda"})


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError("cannot cache function 'read'"),
            "cannot cache function 'read'; set NUMBA_CACHE_DIR to a writable directory",
        ),
        (ImportError("No module named 'numba'"), "TIDEMILL_KERNELS: No module named 'numba'; install tidemill"),
    ],
)
def test_missing_kernels_give_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fail(name: str | None) -> None:
        raise error

    monkeypatch.setattr("tidemill.client.kafka.kernels.load_kernels", fail)
    with pytest.raises(InvalidClientOption, match=line):
        chosen_kernels({"TIDEMILL_KERNELS": "numba"})


def test_a_process_with_little_to_do_does_not_load_the_fastest() -> None:
    choice = KernelChoice(lambda: False)
    assert choice.of(RECORDS_BY_REFERENCE, {}).name == "python"
    assert choice.of(1, {}).name == "numba"
    assert KernelChoice(lambda: True).of(1, {}).name == "numba"
    assert KernelChoice(lambda: False).of(10**9, {"TIDEMILL_KERNELS": "python"}).name == "python"
