from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from thunderfx_cli.errors import UsageError, UserCodeError
from thunderfx_cli.loading.user_errors import user_code, user_code_error, user_place

SOURCE = """import torch
def bad_shape(x):
    y = x + 1
    return y @ torch.ones(3, 3)
def breaks(x):
    torch._dynamo.graph_break()
    return x
def raises(x):
    raise ValueError("boom")
def fine(x):
    return x + 1
def parse():
    import json
    return json.loads("{")
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    file = tmp_path / "user_file.py"
    file.write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "user_file", "path": file}
    exec(compile(SOURCE, str(file), "exec"), namespace)
    torch._dynamo.reset()
    yield namespace
    torch._dynamo.reset()


def raised_by(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as exc:
        return exc
    raise AssertionError("nothing was raised")


def compiled(fn: Any, backend: Any = "eager") -> Exception:
    return raised_by(lambda: torch.compile(fn, backend=backend, fullgraph=True)(torch.ones(2, 2)))


def test_innermost_frame_of_the_user_not_of_a_library(user: dict[str, Any]) -> None:
    error = user_code_error(raised_by(user["parse"]), [user["path"]])
    assert error.where == "user_file.py:14"
    assert error.message.startswith("JSONDecodeError: Expecting property name")
    assert user_code_error(raised_by(user["parse"])).where == "user_file.py:14"


def test_dynamo_error_takes_the_users_stack_from_the_message(user: dict[str, Any]) -> None:
    error = user_code_error(compiled(user["bad_shape"]), [user["path"]])
    assert error.where == "user_file.py:4"
    assert "same reduction dim" in error.message


def test_graph_break_keeps_explanation_and_hint(user: dict[str, Any]) -> None:
    error = user_code_error(compiled(user["breaks"]), [user["path"]])
    assert error.where == "user_file.py:6"
    assert error.message.startswith("Unsupported: Call to `torch._dynamo.graph_break()`\n")
    assert error.hint == "Remove the `torch._dynamo.graph_break()` call."


def test_exception_that_dynamo_observed(user: dict[str, Any]) -> None:
    error = user_code_error(compiled(user["raises"]), [user["path"]])
    assert (error.where, error.message) == ("user_file.py:9", "ValueError('boom')")


def test_backend_failure_says_so(user: dict[str, Any]) -> None:
    def backend(gm: object, example_inputs: object) -> object:
        raise RuntimeError("no such executor")

    error = user_code_error(compiled(user["fine"], backend), [user["path"]])
    assert error.message == "the backend failed to compile: RuntimeError: no such executor"


def test_installed_packages_in_a_project_are_not_the_users(tmp_path: Path) -> None:
    inside = tmp_path / ".venv" / "lib" / "site-packages" / "lib.py"
    inside.parent.mkdir(parents=True)
    namespace: dict[str, Any] = {}
    exec(compile("def f(): raise KeyError('k')", str(inside), "exec"), namespace)
    exc = raised_by(lambda: namespace["f"]())
    assert "lib.py" not in user_place(exc, [tmp_path])
    assert user_place(exc, [inside]) == f"{inside}:1"


def test_no_frame_of_the_user() -> None:
    assert user_place(ValueError("never raised")) == ""


def test_cause_is_searched_when_the_exception_itself_has_no_frame(user: dict[str, Any]) -> None:
    outer = ValueError("outer")
    outer.__cause__ = raised_by(user["parse"])
    assert user_place(outer, [user["path"]]) == "user_file.py:14"


def test_context_chains_and_passes_our_own_errors() -> None:
    with pytest.raises(UserCodeError, match="KeyError: 'k'") as caught, user_code():
        raise KeyError("k")
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(UsageError, match="ours"), user_code():
        raise UsageError("ours")
    with pytest.raises(KeyboardInterrupt), user_code():
        raise KeyboardInterrupt
    with pytest.raises(UserCodeError, match=r"AssertionError$"), user_code():
        raise AssertionError


def test_syntax_error_of_a_string_has_the_callers_line(user: dict[str, Any]) -> None:
    exc = raised_by(lambda: exec("x = ="))
    assert user_code_error(exc).where.startswith(f"{__file__}:")
    assert json.dumps(user_code_error(exc).message)
