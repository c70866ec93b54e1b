"""Puts a mutated function into modules that are already imported, so that a mutant costs no import."""

import gc
from collections import defaultdict
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType


class Functions:
    """The functions of the sources in a folder that exist in this process."""

    def __init__(self, source: Path) -> None:
        prefix = f"{source}/"
        self._found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename.startswith(prefix):
                self._found[_key(each.__code__)].append(each)
        self._files = {file for file, _, _ in self._found}

    def patch(self, file: Path, original: str, mutated: str, scope: str) -> bool:
        """Whether the function now behaves as in the mutated source. A module that is imported later is not changed."""
        if str(file) not in self._files:
            return True
        for before, after in zip(_functions(original, file), _functions(mutated, file), strict=True):
            if before.co_qualname == scope and before != after:
                return self._exchange(self._found.get(_key(before), []), after)
        return False

    def _exchange(self, functions: list[FunctionType], code: CodeType) -> bool:
        try:
            for each in functions:
                each.__code__ = code
        except ValueError:  # the mutant uses fewer variables of the scope around it
            return False
        return bool(functions)


def _key(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _functions(source: str, file: Path) -> list[CodeType]:
    return list(_below(compile(source, str(file), "exec", dont_inherit=True)))


def _below(code: CodeType) -> Iterator[CodeType]:
    """The outermost functions, also of classes, in the order of the source."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & CO_OPTIMIZED:
                yield each
            else:  # the body of a class
                yield from _below(each)
