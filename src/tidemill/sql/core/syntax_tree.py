"""Questions as trees: what the engine's own parser made of the text, as plain dictionaries and lists."""

from collections.abc import Iterator
from typing import Any, NamedTuple

Node = dict[str, Any]


class Visited(NamedTuple):
    """A node with what stands around it."""

    node: Node
    select: Node | None
    role: str


def walk(tree: Node) -> Iterator[Visited]:
    """Every node, parents first; `role` is the name under which a parent holds it."""
    waiting: list[tuple[Any, Node | None, str]] = [(tree, None, "")]
    while waiting:
        found, select, role = waiting.pop()
        if isinstance(found, list):
            waiting += [(each, select, role) for each in reversed(found)]
            continue
        if not isinstance(found, dict):
            continue
        if "type" in found:
            yield Visited(found, select, role)
            if found["type"] == "SelectQuery":
                select = found
        waiting += [(each, select, name) for name, each in reversed(found.items())]


def arguments(function: Node) -> list[Node]:
    """What a function is called with."""
    found: list[Node] = (function.get("arguments") or {}).get("children", [])
    return found


def is_function(node: Node, *names: str) -> bool:
    """Whether a node calls one of these functions."""
    return node.get("type") == "Function" and node.get("name") in names


def name_parts(node: Node) -> list[str]:
    """The parts of a name; `a.b` has two."""
    found: list[str] = node.get("name_parts") or [node["name"]]
    return found


def constants(node: Node) -> list[Any] | None:
    """The values of a literal, or of a list of literals; None for anything else."""
    if is_function(node, "tuple", "array"):
        found = [constants(each) for each in arguments(node)]
        return None if any(each is None for each in found) else [value for each in found for value in each or ()]
    return _values(node["value"]) if node.get("type") == "Literal" else None


def _values(field: Any) -> list[Any] | None:
    if not isinstance(field, dict):
        return None
    if field.get("field_type") in {"Tuple", "Array"}:
        found = [_values(each) for each in field["value"]]
        return None if any(each is None for each in found) else [value for each in found for value in each or ()]
    return [field["value"]] if field.get("field_type") in {"String", "UInt64", "Int64"} else None
