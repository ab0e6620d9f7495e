"""``--compile NAME``: every binding of NAME in a syntax tree is followed by ``NAME = __thunderfx_wrap__(NAME)``."""

from __future__ import annotations

import ast

WRAP = "__thunderfx_wrap__"


def wrap_name(tree: ast.Module, name: str) -> int:
    """Insert the calls into ``tree``, in place, and return how many.

    Bindings are assignments, imports, ``with ... as``, functions and classes, at top level and in function bodies.
    Class bodies are left alone: there NAME is an attribute. Inserted nodes carry the line of the binding, so that
    tracebacks and line numbers stay those of the file.
    """
    inserter = _Inserter(name)
    inserter.visit(tree)
    ast.fix_missing_locations(tree)
    return inserter.count


class _Inserter(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self._in_class_body = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        outer = self._in_class_body
        if isinstance(node, ast.ClassDef):
            self._in_class_body = True
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._in_class_body = False
        super().generic_visit(node)
        if not self._in_class_body:
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(node, field, None)
                if isinstance(statements, list):
                    setattr(node, field, self._with_wraps(statements))
            if isinstance(node, (ast.With, ast.AsyncWith)) and self._stores(node.items):
                node.body.insert(0, self._wrap(node.items[0].context_expr))
        self._in_class_body = outer
        return node

    def _with_wraps(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            result.append(statement)
            if self._binds(statement):
                result.append(self._wrap(statement))
        return result

    def _binds(self, statement: ast.stmt) -> bool:
        match statement:
            case ast.Assign(targets=targets):
                return self._stores(targets)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                return name == self.name and value is not None
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                return name == self.name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                return any((alias.asname or alias.name) == self.name for alias in aliases)
        return False

    def _stores(self, nodes: list[ast.expr] | list[ast.withitem]) -> bool:
        return any(
            isinstance(node, ast.Name) and node.id == self.name and isinstance(node.ctx, ast.Store)
            for root in nodes
            for node in ast.walk(root)
        )

    def _wrap(self, at: ast.stmt | ast.expr) -> ast.stmt:
        self.count += 1
        call = ast.Call(ast.Name(WRAP, ast.Load()), [ast.Name(self.name, ast.Load())], [])
        new = ast.Assign([ast.Name(self.name, ast.Store())], call)
        for node in ast.walk(new):
            ast.copy_location(node, at)
        return new
