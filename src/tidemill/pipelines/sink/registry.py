"""The registry of sink types. It imports every module of this package, so a new module needs no other change."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

from tidemill.pipelines import sink as package
from tidemill.pipelines.sink.sink_type import SinkType
from tidemill.pipelines.spec.folder import SinkRun

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


@cache
def sink_types() -> MappingProxyType[str, SinkType]:
    """Every sink type by its name in `pipeline.yml`, in the order of error messages."""
    modules = [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]
    classes = sorted((each for module in modules for each in _classes(module)), key=lambda each: (each.rank, each.name))
    types: dict[str, SinkType] = {}
    for each in classes:
        if each.name in types:
            raise TypeError(f"{each.__module__}: the sink type {each.name} exists already")
        types[each.name] = each()
    return MappingProxyType(types)


def writer_of(rows: "Rows", run: SinkRun) -> "RowsWriter":
    """The writer of a sink, made by its type."""
    return sink_types()[run.sink.kind].writer(rows, run)


def _classes(module: ModuleType) -> list[type[SinkType]]:
    """The sink types that a module defines. A class without a name of its own is a base of others."""
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, SinkType)
        and each.__module__ == module.__name__
        and "name" in vars(each)
    ]
