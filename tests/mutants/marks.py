"""Marks in the statements of functions: an import hook that adds a call before each statement.

A mark costs less than a trace of all calls, and it finds the statement and not only the function. A mutant needs only
the tests that reach its statement.
"""

import ast
import builtins
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType

MARK = "__mark__"


class Marks(MetaPathFinder):
    """Adds the marks to the chosen modules below a folder while they are imported."""

    def __init__(self, source: Path, is_chosen: Callable[[PurePosixPath], bool]) -> None:
        self._source = source
        self._is_chosen = is_chosen
        self._keys: list[str] = []
        self._seen: set[int] = set()
        setattr(builtins, MARK, self._seen.add)
        sys.meta_path.insert(0, self)

    def seen(self) -> set[str]:
        """The statements that were reached since the last call, by `statement_key`."""
        numbers = self._seen.copy()
        self._seen -= numbers
        return {self._keys[number] for number in numbers}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as Python finds it, with a loader that adds marks."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
            return None
        place = Path(spec.origin)
        if not place.is_relative_to(self._source):
            return None
        module = PurePosixPath(place.relative_to(self._source))
        if self._is_chosen(module):
            spec.loader = _Loader(fullname, spec.origin, self._keys, module)
        return spec


def statement_key(module: PurePosixPath, scope: str, position: tuple[int, int]) -> str:
    """The name of a statement in `Coverage`, from what a mutation knows about it."""
    line, column = position
    return f"{module}::{scope}:{line}:{column}"


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, keys: list[str], module: PurePosixPath) -> None:
        super().__init__(fullname, path)
        self._keys = keys
        self._module = module

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path))
        self._visit(tree, "", "")
        return compile(tree, path, "exec")

    def _visit(self, node: ast.AST, name: str, scope: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = scope or name
        for _, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            for child in children:
                if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                    self._visit(child, name, scope)
            if scope and isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                value[:] = [each for child in value for each in self._marked(child, scope)]

    def _marked(self, child: ast.stmt, scope: str) -> list[ast.stmt]:
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            return [child]  # a docstring has to stay the first
        mark = ast.parse(f"{MARK}({len(self._keys)})").body[0]
        for node in ast.walk(mark):
            ast.copy_location(node, child)
        self._keys.append(statement_key(self._module, scope, (child.lineno, child.col_offset)))
        return [mark, child]
