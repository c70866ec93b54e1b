"""The single mutations that the source of a module allows.

This module is pure: source text in, mutated source text out. A mutation is identified by the function that it is in
and by the statement before and after, never by a line number. An edit elsewhere in the file does not change that.
"""

import ast
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import dataclass, replace

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
MODULE = "<module>"
"""The function of a statement that is in none."""
LOGGERS = frozenset({"log", "logger"})
"""A removed log line is no fault that the tests of a package should find."""
LAYOUT_KEYWORDS = frozenset({"indent"})
"""Arguments that only change the white space of a document, which its readers ignore."""
TEXT_FUNCTIONS = frozenset({"__repr__", "__str__"})
"""They make text for people who look for a fault."""
STATEMENT_CHARACTERS_MAX = 120
CONTEXT_CHARACTERS = 40
"""A longer statement is shown, and named, by so much on either side of the difference."""
SKIPPED_FIELDS = frozenset({"annotation", "returns", "decorator_list", "type_params"})


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one statement; `start` and `end` are byte offsets in the source.

    `scope` is the outermost function around it, and `position` the line and column of its statement in there. A default
    argument of that function has no such statement, because it is evaluated with the definition.
    """

    line: int
    function: str
    scope: str
    position: tuple[int, int] | None
    before: str
    after: str
    start: int
    end: int
    text: str

    def apply(self, source: str) -> str:
        """The source with this change."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What encloses a node; see `Mutation`."""

    function: str = ""
    scope: str = ""
    position: tuple[int, int] | None = None

    def of(self, node: ast.stmt | ast.match_case) -> "Surroundings":
        """What encloses the parts of a statement."""
        inside = self
        if self.scope and isinstance(node, ast.stmt):
            inside = replace(inside, position=(node.lineno, node.col_offset))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = replace(inside, function=f"{self.function}.{node.name}".lstrip("."))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not self.scope:
            inside = replace(inside, scope=inside.function)
        return inside


def mutations(source: str) -> list[Mutation]:
    """All mutations of the source, in its order."""
    return list(_Finder(source).found())


class _Finder:
    """Walks the tree and knows the statement and the function that it is in."""

    def __init__(self, source: str) -> None:
        self._tree = ast.parse(source)
        self._starts = [0]
        for line in source.encode().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def found(self) -> Iterator[Mutation]:
        for statement in self._tree.body:
            yield from self._statement(statement, Surroundings())

    def _statement(self, node: ast.stmt | ast.match_case, around: Surroundings) -> Iterator[Mutation]:
        inside = around.of(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.FunctionDef) and node.name in TEXT_FUNCTIONS:
            return
        if isinstance(node, ast.stmt):
            for text in _statements(node, is_constructor=inside.function.endswith("__init__")):
                yield self._mutation(node, node, text, text, inside)
        for name, child in _children(node):
            yield from self._part(name, child, node, inside)

    def _part(
        self, name: str, child: ast.AST, node: ast.stmt | ast.match_case, inside: Surroundings
    ) -> Iterator[Mutation]:
        match child:
            case ast.expr():
                yield from self._expression(child, node, inside, is_condition=name in {"test", "guard"})
            case ast.keyword() if _is_unseen(child):
                pass
            case ast.withitem(context_expr=value) | ast.keyword(value=value):
                yield from self._expression(value, node, inside)
            case ast.arguments():
                yield from self._defaults(child, node, inside)
            case ast.ExceptHandler(body=body):
                for each in body:
                    yield from self._statement(each, inside)
            case ast.stmt() | ast.match_case():
                yield from self._statement(child, inside)
            case _:
                pass

    def _defaults(self, node: ast.arguments, statement: ast.AST, inside: Surroundings) -> Iterator[Mutation]:
        for default in [*node.defaults, *node.kw_defaults]:
            if default is not None:
                yield from self._expression(default, statement, inside)

    def _expression(
        self, node: ast.expr, statement: ast.AST, inside: Surroundings, *, is_condition: bool = False
    ) -> Iterator[Mutation]:
        if isinstance(node, ast.JoinedStr):  # before Python 3.12 the positions inside of an f-string are wrong
            return
        changed = [*_expressions(node)]
        if is_condition and not isinstance(node, ast.Compare | ast.UnaryOp | ast.Constant):
            changed.append(ast.UnaryOp(ast.Not(), node))
        for other in changed:
            text = f"({ast.unparse(other)})"
            yield self._mutation(node, statement, text, _header(_replaced(statement, node, other)), inside)
        for name, child in _children(node):
            match child:
                case ast.expr():
                    is_test = isinstance(node, ast.IfExp) and name == "test"
                    yield from self._expression(child, statement, inside, is_condition=is_test)
                case ast.keyword() if _is_unseen(child):
                    pass
                case ast.keyword(value=value):
                    yield from self._expression(value, statement, inside)
                case ast.arguments():
                    yield from self._defaults(child, statement, inside)
                case ast.comprehension():
                    yield from self._expression(child.iter, statement, inside)
                    for condition in child.ifs:
                        yield from self._expression(condition, statement, inside, is_condition=True)
                case _:
                    pass

    def _mutation(
        self, node: ast.stmt | ast.expr, statement: ast.AST, text: str, after: str, inside: Surroundings
    ) -> Mutation:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        before, after = _shortened(_header(statement), after)
        function = inside.function or MODULE
        return Mutation(node.lineno, function, inside.scope, inside.position, before, after, start, end, text)


def _shortened(before: str, after: str) -> tuple[str, str]:
    """Of long statements, the part around the difference."""
    if len(before) <= STATEMENT_CHARACTERS_MAX:
        return before, after
    shortest = min(len(before), len(after))
    head = next((at for at in range(shortest) if before[at] != after[at]), shortest)
    tail = next((at for at in range(shortest - head) if before[-1 - at] != after[-1 - at]), shortest - head)
    first, last = max(0, head - CONTEXT_CHARACTERS), max(0, tail - CONTEXT_CHARACTERS)

    def window(text: str) -> str:
        return f"{'...' if first else ''}{text[first : len(text) - last]}{'...' if last else ''}"

    return window(before), window(after)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The nodes directly below, with the fields that they are in."""
    for name, value in ast.iter_fields(node):
        if name not in SKIPPED_FIELDS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield name, child


def _statements(node: ast.stmt, *, is_constructor: bool) -> Iterator[str]:
    """Other statements for this one."""
    match node:
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"
        # False and None are the same to a condition, and a boolean is negated on its own.
        case ast.Return(value=value) if value is not None and ast.unparse(value) not in {"None", "False", "True"}:
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) if not _is_log_call(node.value):
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if not is_constructor:
            yield "pass"
        case ast.AugAssign(op=op) if type(op) in OPERATORS:
            yield ast.unparse(ast.AugAssign(node.target, OPERATORS[type(op)](), node.value))
        case _:
            pass


def _is_unseen(argument: ast.keyword) -> bool:
    """Whether no fault of this argument can be seen: layout, and `strict=True`, which checks equal lengths again."""
    is_check = argument.arg == "strict" and isinstance(argument.value, ast.Constant) and argument.value.value is True
    return is_check or argument.arg in LAYOUT_KEYWORDS


def _is_log_call(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in LOGGERS
        case _:
            return False


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    """Other expressions for this one."""
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                operators = [*node.ops]
                operators[place] = COMPARISONS[type(operator)]()
                yield ast.Compare(node.left, operators, node.comparators)
        case ast.BinOp(op=op) if type(op) in OPERATORS and not _is_text(node.left) and not _is_text(node.right):
            yield ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            yield ast.Call(ast.Name(FUNCTIONS[name]), node.args, node.keywords)
        case _:
            pass


def _is_text(node: ast.expr) -> bool:
    """Whether an operator on it joins or formats text or bytes; any other operator always fails."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _replaced(statement: ast.AST, node: ast.expr, other: ast.expr) -> ast.AST:
    """A copy of the statement with one expression in it exchanged."""

    class Exchange(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> ast.AST:
            return other if each is node else super().visit(each)

    # The transformer changes nodes in place, so it works on a copy. The expression to exchange is not copied.
    return Exchange().visit(deepcopy(_without_body(statement), {id(node): node}))


def _without_body(node: ast.AST) -> ast.AST:
    """A compound statement with nothing in it; any other statement as it is."""
    header = copy(node)
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            header.body = [ast.Pass()]  # type: ignore[attr-defined]  # a statement that has it
        elif name in {"orelse", "finalbody", "handlers", "cases", "decorator_list"}:
            setattr(header, name, [])
    return header


def _header(node: ast.AST) -> str:
    """The statement as one line; of a compound statement its first line."""
    lines = ast.unparse(_without_body(node)).splitlines()
    is_compound = isinstance(getattr(node, "body", None), list) or isinstance(node, ast.Match)
    return lines[0] if is_compound else " ".join(line.strip() for line in lines)
