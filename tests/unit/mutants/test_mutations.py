"""Mutations: each kind changes one thing, and nothing else changes."""

import ast

import pytest
from tests.mutants.mutations import Mutation, mutations


def changes(source: str) -> list[tuple[str, str]]:
    return [(found.before, found.after) for found in mutations(source)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a >= b", ["x = a > b"]),
        ("x = a == b", ["x = a != b"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("x = a + b", ["x = a - b"]),
        ("x = a % b", ["x = a * b"]),
        ("x = a << b", ["x = a >> b"]),
        ("x = a & b", ["x = a | b"]),
        ("x = 7", ["x = 8"]),
        ("x = True", ["x = False"]),
        ("x = -y", ["x = y"]),
        ("x = not y", ["x = y"]),
        ("x = a and b", ["x = a or b"]),
        ("x = a or b or c", ["x = a and b and c"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = all(a)", ["x = any(a)"]),
        ("x = b if a else c", ["x = b if not a else c"]),
        ("x = [b for b in c if b]", ["x = [b for b in c if not b]"]),
        ("x = f(a=1)", ["x = f(a=2)"]),
        ("x = zip(a, b, strict=False)", ["x = zip(a, b, strict=True)"]),
        ("x = lambda a=1: a", ["x = lambda a=2: a"]),
        ("x += y", ["x -= y"]),
        ("f()", ["pass"]),
        ("self.x = y", ["pass"]),
        ("x[y] = z", ["pass"]),
        ("assert a", ["assert not a"]),
    ],
)
def test_each_kind_of_mutation(before: str, after: list[str]) -> None:
    assert changes(before) == [(before, each) for each in after]
    for found in mutations(before):
        assert ast.unparse(ast.parse(found.apply(before))) == found.after


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x = 'text'",
        "x = f'{1 + 2}'",
        "x = 'a' + b",
        "x = b'a' + b",
        "x = '%d' % b",
        "x: Literal[1]",
        "@cache(size=1)\ndef f(a: Literal[1]) -> Literal[2]: ...",
        "if TYPE_CHECKING:\n    import os",
        "def f():\n    return",
        "def f():\n    return None",
        "log.warning('read', count=n)",
        "class A:\n    def __repr__(self):\n        return str(1 + 2)",
        "x = dumps(y, indent=1)",
        "x = list(zip(a, b, strict=True))",
        "import a",
        "x = y",
        "class A:\n    def __init__(self, b):\n        self.b = b",
    ],
)
def test_source_without_a_possible_fault_is_not_mutated(source: str) -> None:
    assert changes(source) == []


def test_statements_of_functions() -> None:
    source = """
class Store:
    def read(self, limit=1):
        for item in self.items:
            if item:
                continue
            break
        return item

    async def close(self):
        await self.file.close()
"""
    assert [(found.line, found.function, found.before, found.after) for found in mutations(source)] == [
        (3, "Store.read", "def read(self, limit=1):", "def read(self, limit=2):"),
        (5, "Store.read", "if item:", "if not item:"),
        (6, "Store.read", "continue", "break"),
        (7, "Store.read", "break", "continue"),
        (8, "Store.read", "return item", "return None"),
        (11, "Store.close", "await self.file.close()", "pass"),
    ]


@pytest.mark.parametrize(("value", "others"), [("x", ["None"]), ("True", ["False"]), ("False", ["True"])])
def test_returned_values_are_replaced(value: str, others: list[str]) -> None:
    found = changes(f"def f():\n    return {value}")
    assert found == [(f"return {value}", f"return {other}") for other in others]


def test_conditions_of_every_statement_are_negated() -> None:
    source = """
while a:
    with open(b and c):
        pass
match d:
    case 1 if e:
        pass
try:
    f()
except KeyError:
    g()
else:
    h()
finally:
    i()
"""
    assert changes(source) == [
        ("while a:", "while not a:"),
        ("with open(b and c):", "with open(b or c):"),
        ("case 1 if e:", "case 1 if not e:"),
        *((f"{name}()", "pass") for name in "fghi"),
    ]


def test_only_the_mutated_place_changes() -> None:
    source = "é = 'ü'; x = (a +  # a comment\n     1) * 2\ny = 1\n"
    applied = [found.apply(source) for found in mutations(source)]
    assert applied == [
        "é = 'ü'; x = ((a + 1) // 2)\ny = 1\n",
        "é = 'ü'; x = ((a - 1)) * 2\ny = 1\n",
        "é = 'ü'; x = (a +  # a comment\n     (2)) * 2\ny = 1\n",
        "é = 'ü'; x = (a +  # a comment\n     1) * (3)\ny = 1\n",
        "é = 'ü'; x = (a +  # a comment\n     1) * 2\ny = (2)\n",
    ]


def test_the_same_change_of_another_place_is_another_mutation() -> None:
    found = mutations("x = 1 + 1")
    assert [each.after for each in found] == ["x = 1 - 1", "x = 2 + 1", "x = 1 + 2"]
    assert len({each.start for each in found}) == 2


def test_a_mutation_does_not_change_the_tree_of_the_next() -> None:
    source = "x = f(a < b, [c == d], e=not g)"
    found: list[Mutation] = mutations(source)
    assert {each.before for each in found} == {source}
    assert len({each.after for each in found}) == len(found) == 3


def test_a_long_statement_is_named_by_the_part_around_the_difference() -> None:
    names = ", ".join(f"name_{number:02}" for number in range(40))
    [found] = mutations(f"x = [{names}, a < b, {names}]")
    assert found.before == "... name_36, name_37, name_38, name_39, a < b, name_00, name_01, name_02, name_03, ..."
    assert found.after == found.before.replace("<", "<=")


def test_a_mutation_knows_its_outermost_function_and_its_statement_in_there() -> None:
    source = """
class Store:
    limit = 1
    def read(self, most=2):
        def part(least=3):
            return 4
        return part
"""
    assert [(found.after.strip(), found.scope, found.position) for found in mutations(source)] == [
        ("limit = 2", "", None),
        ("def read(self, most=3):", "Store.read", None),
        ("def part(least=4):", "Store.read", (5, 8)),
        ("return None", "Store.read", (6, 12)),
        ("return 5", "Store.read", (6, 12)),
        ("return None", "Store.read", (7, 8)),
    ]
