"""Model or script: decided from the syntax tree alone, so that a file is executed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal

from thunderfx_cli.loading.source import parse_source

Mode = Literal["model", "script"]

MODEL_NAMES = ("model", "Model")  #: looked up in this order
INPUT_NAMES = ("inputs", "example_inputs")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def detect_mode(source: str | bytes, filename: str, attr: str | None, *, input_specs: Sequence[str] = ()) -> Mode:
    """``model`` if the user named an attribute or inputs, or the file just defines a model; else ``script``.

    A file with a main guard, without a conventional name, or that compiles or trains by itself at top level and
    offers no inputs is a program. Raises :class:`UserCodeError` for source that does not parse.
    """
    tree = parse_source(source, filename)
    if attr or input_specs:
        return "model"
    names = defined_names(tree)
    if has_main_guard(tree) or not names.intersection(MODEL_NAMES):
        return "script"
    if not names.intersection(INPUT_NAMES) and _drives_itself(tree):
        return "script"
    return "model"


def defined_names(tree: ast.Module) -> set[str]:
    """Names that running the module binds at top level, also inside ``if``, ``try``, ``with`` and loops."""
    nodes = list(_top_level(tree))
    binds_nothing = {id(node.target) for node in nodes if isinstance(node, ast.AnnAssign) and node.value is None}
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in binds_nothing:
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names.update((alias.asname or alias.name).split(".")[0] for alias in aliases)
    return names


def has_main_guard(tree: ast.Module) -> bool:
    """Whether the module tests ``__name__`` against ``"__main__"`` at top level."""
    return any(isinstance(node, ast.If) and _tests_main(node.test) for node in _top_level(tree))


def _tests_main(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            sides = (node.left, node.comparators[0])
            names = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
            if names and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides):
                return True
    return False


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that execute when the module does: functions and classes themselves, but not their bodies."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, *_SCOPES)):
            continue
        yield from _top_level(child)


def _drives_itself(tree: ast.Module) -> bool:
    """Whether top-level code compiles (``torch.compile``, ``thunderfx``) or trains (``x.backward()``)."""
    for node in _top_level(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="compile")):
                return True
            case ast.Call(func=ast.Name(id="thunderfx") | ast.Attribute(attr="thunderfx" | "backward")):
                return True
    return False
