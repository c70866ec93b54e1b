"""Reads a pipeline from disk, with every check that is possible without Spark."""

import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tidemill.pipelines.spec.core.graph import check_parameters, check_query, in_order, parameters, views_in_sql
from tidemill.pipelines.spec.core.spec import Spec, Transformation, WrongSpec
from tidemill.pipelines.spec.core.spec_reading import SinkReading, read_spec
from tidemill.pipelines.spec.folder import SPEC, Folder, TransformationStep


class _Loader(yaml.SafeLoader):
    """Rejects a repeated key. YAML would otherwise ignore the first of two sinks with one name."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        known: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in known:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value} occurs twice", problem_mark=key.start_mark)
            known.add(key.value)
        return super().construct_mapping(node, deep)


def load(root: Path, types: Mapping[str, SinkReading]) -> Folder:
    """Read a pipeline. Raises WrongSpec with one line when it is invalid. `types` are the sink types by their names."""
    file = root / SPEC
    try:
        parsed = yaml.load(file.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a subclass of SafeLoader
    except FileNotFoundError:
        raise WrongSpec(f"{file} does not exist; create a pipeline with: tidemill pipeline init {root}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise WrongSpec(f"{file} is not valid YAML: {' '.join(str(error).split())}") from None
    spec = read_spec(str(file), parsed, os.environ, types)
    steps = {each.name: _step(root, spec, each) for each in spec.transformations}
    return Folder(root, spec, tuple(steps[name] for name in _order(file, spec, steps)))


def _order(file: Path, spec: Spec, steps: Mapping[str, TransformationStep]) -> list[str]:
    """The transformations in dependency order.

    An apparent cycle is checked again strictly: a column may share a view's name.
    """
    try:
        return in_order(str(file), {name: step.reads for name, step in steps.items()})
    except WrongSpec:
        strict = {name: _reads_strictly(spec, step) for name, step in steps.items()}
        return in_order(str(file), strict)


def _reads_strictly(spec: Spec, step: TransformationStep) -> tuple[str, ...]:
    if not step.transformation.sql:
        return step.reads
    return tuple(sorted(views_in_sql(step.text, spec.views, strict=True)))


def _step(root: Path, spec: Spec, each: Transformation) -> TransformationStep:
    path = root / each.file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WrongSpec(f"{root / SPEC}: transformations.{each.name}.file: {path} does not exist") from None
    except UnicodeDecodeError as error:
        raise WrongSpec(f"{path} is not UTF-8 text: {error}") from None
    others = [view for view in spec.views if view != each.name]
    if each.sql:
        check_query(str(path), text)
        return TransformationStep(each, path, text, tuple(sorted(views_in_sql(text, others))))
    names = parameters(str(path), text, each.name)
    check_parameters(str(path), each.name, names, others)
    return TransformationStep(each, path, text, names)
