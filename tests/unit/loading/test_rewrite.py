from __future__ import annotations

import ast

import pytest

from thunderfx_cli.loading.rewrite import WRAP, wrap_name


def rewritten(source: str) -> str:
    tree = ast.parse(source)
    wrap_name(tree, "m")
    return ast.unparse(tree)


CALL = f"m = {WRAP}(m)"


@pytest.mark.parametrize(
    "binding",
    [
        "m = f()",
        "a = m = f()",
        "(m, a) = f()",
        "m: int = f()",
        "import m",
        "from a import b as m",
        "def m(x):\n    return x",
        "class m:\n    pass",
    ],
)
def test_bindings(binding: str) -> None:
    assert rewritten(binding) == f"{ast.unparse(ast.parse(binding))}\n{CALL}"


@pytest.mark.parametrize("source", ["m", "m.x = 1", "m[0] = 1", "m: int", "n = m", "class A:\n    m = 1", "print(m=1)"])
def test_not_bindings(source: str) -> None:
    assert rewritten(source) == source


def test_nested_statements() -> None:
    source = "if a:\n    m = 1\nelse:\n    for i in b:\n        m = 2\nclass A:\n\n    def f(self):\n        m = 3"
    assert rewritten(source).count(CALL) == 3
    source = "try:\n    m = 1\nexcept E:\n    m = 2\nelse:\n    m = 3\nfinally:\n    m = 4"
    assert rewritten(source).count(CALL) == 4


def test_with_binds_before_its_body() -> None:
    assert rewritten("with f() as m:\n    g(m)") == f"with f() as m:\n    {CALL}\n    g(m)"


def test_lines_are_kept() -> None:
    tree = ast.parse("x = 1\n\nm = f(\n    1)\nraise ValueError\n")
    assert wrap_name(tree, "m") == 1
    assert [statement.lineno for statement in tree.body] == [1, 3, 3, 5]
    compile(tree, "f.py", "exec")
