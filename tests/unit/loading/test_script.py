from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from thunderfx_cli.errors import UsageError, UserCodeError
from thunderfx_cli.loading.script import ScriptResult, run_script

Calls = list[tuple[Any, dict[str, Any]]]
Run = Callable[..., tuple[ScriptResult, Calls]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Write ``source`` to ``program.py`` and run it; returns the result and the calls of ``wrap_compile``."""
    monkeypatch.chdir(tmp_path)

    def run(source: str, *argv: str, **options: Any) -> tuple[ScriptResult, Calls]:
        (tmp_path / "program.py").write_text(textwrap.dedent(source))
        calls: Calls = []

        def wrap_compile(fn: Any, **kwargs: Any) -> Any:
            calls.append((fn, kwargs))
            return fn

        return run_script(Path("program.py"), argv, wrap_compile=wrap_compile, **options), calls

    return run


def test_runs_as_main_with_its_own_arguments(run: Run, tmp_path: Path) -> None:
    source = """
    import sys, pickle, dataclasses
    from pathlib import Path
    @dataclasses.dataclass
    class Point:
        x: "int"
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1)
    assert __name__ == "__main__" and sys.modules["__main__"].Point is Point
    Path("seen.txt").write_text(repr((sys.argv, sys.path[0], __file__)))
    """
    result, calls = run(source, "--epochs", "3")
    assert (result.exit_code, calls) == (0, [])
    expected = (["program.py", "--epochs", "3"], str(tmp_path), str(tmp_path / "program.py"))
    assert (tmp_path / "seen.txt").read_text() == repr(expected)


@pytest.mark.parametrize("ending", ["", "raise SystemExit(2)", "raise ValueError", "raise KeyboardInterrupt"])
def test_interpreter_is_restored(run: Run, ending: str) -> None:
    def state() -> list[object]:
        return [sys.modules["__main__"], sys.argv, list(sys.path), torch.compile, torch.nn.Module.compile]

    before = state()
    try:
        run("import sys\nsys.path.append('x')\nsys.argv.append('y')\n" + ending)
    except (UserCodeError, KeyboardInterrupt):
        pass
    assert state() == before


@pytest.mark.parametrize(
    ("call", "kwargs"),
    [
        ("torch.compile(net)", {}),
        ("torch.compile(net, fullgraph=True, dynamic=False)", {"fullgraph": True, "dynamic": False}),
        ("torch.compile(net, backend='inductor', mode='max-autotune')", {}),
        ("torch.compile(model=net, backend='aot_eager', options={'trace.enabled': True})", {}),
        ("torch.compile(dynamic=True)(net)", {"dynamic": True}),
        ("compile(net)", {}),
    ],
)
def test_compile_calls_are_redirected(run: Run, call: str, kwargs: dict[str, Any]) -> None:
    _, calls = run(f"import torch\nfrom torch import compile\nnet = torch.nn.ReLU()\nassert {call} is net")
    assert [(type(fn), options) for fn, options in calls] == [(torch.nn.ReLU, kwargs)]


def test_decorator_forms(run: Run) -> None:
    source = """
    import torch
    @torch.compile
    def f(x): return x
    @torch.compile(dynamic=True)
    def g(x): return x
    """
    _, calls = run(source)
    assert [(fn.__name__, options) for fn, options in calls] == [("f", {}), ("g", {"dynamic": True})]


def test_module_compile_is_redirected_and_registers_no_submodule(run: Run) -> None:
    source = """
    import torch
    net = torch.nn.Linear(2, 2)
    net.compile(fullgraph=True)
    assert list(net.children()) == []
    assert net(torch.ones(1, 2)).shape == (1, 2)
    """
    _, calls = run(source)
    assert [(type(inspect.unwrap(fn).__self__), options) for fn, options in calls] == [
        (torch.nn.Linear, {"fullgraph": True})
    ]


def test_backend_objects_stay_and_are_seen(run: Run) -> None:
    source = """
    import torch
    def backend(gm, example_inputs): return gm.forward
    assert torch.compile(torch.nn.ReLU(), backend=backend)(torch.ones(2)).sum() == 2
    torch.compile(torch.nn.ReLU(), disable=True)
    """
    seen: list[tuple[Any, Any]] = []
    _, calls = run(source, on_compiled=lambda compiled, backend: seen.append((compiled, backend)))
    assert calls == []
    assert [backend.__name__ for _, backend in seen] == ["backend"]


def test_unknown_option_is_the_scripts_error(run: Run) -> None:
    with pytest.raises(UserCodeError, match="TypeError: got an unexpected keyword argument 'nope'") as caught:
        run("import torch\ntorch.compile(torch.nn.ReLU(), nope=1)")
    assert caught.value.where == "program.py:2"


@pytest.mark.parametrize(
    ("statement", "code"),
    [("sys.exit()", 0), ("sys.exit(0)", 0), ("sys.exit(3)", 3), ("sys.exit(True)", 1), ("sys.exit(-1)", 255)],
)
def test_exit_code_is_kept(run: Run, statement: str, code: int) -> None:
    assert run(f"import sys\n{statement}")[0].exit_code == code


def test_exit_message_goes_to_stderr(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("raise SystemExit('bad data')")[0].exit_code == 1
    assert capsys.readouterr().err == "bad data\n"


def test_exception_names_the_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "layers_of_program.py").write_text("def f():\n    return 1 / 0\n")
    with pytest.raises(UserCodeError, match="ZeroDivisionError: division by zero") as caught:
        run("from layers_of_program import f\nif __name__ == '__main__':\n    f()")
    assert caught.value.where == "layers_of_program.py:2"
    del sys.modules["layers_of_program"]


def test_syntax_error(run: Run) -> None:
    with pytest.raises(UserCodeError, match="SyntaxError") as caught:
        run("x = 1\ny = = 2")
    assert caught.value.where == "program.py:2"


@pytest.mark.parametrize(
    "source",
    [
        "net = torch.nn.ReLU()\nnet(x)",
        "def main():\n    net = torch.nn.ReLU()\n    net = net.to('cpu')\n    net(x)\nmain()",
        "net = None\nif __name__ == '__main__':\n    net = torch.nn.ReLU()\nnet(x)",
        "from torch.nn import ReLU\nfor net in [ReLU()]:\n    net = net.train()\n    net(x)",
    ],
)
def test_compile_name_compiles_a_module_once_and_in_place(run: Run, source: str) -> None:
    _, calls = run(f"import torch\nx = torch.ones(2)\n{source}", compile_name="net")
    assert [type(inspect.unwrap(fn).__self__) for fn, _ in calls] == [torch.nn.ReLU]


def test_compile_name_of_a_class_compiles_its_instances(run: Run) -> None:
    source = """
    import torch
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
    class Child(Net): pass
    assert isinstance(Child(), Net)
    assert Net()._compiled_call_impl is not None
    Net()
    """
    _, calls = run(source, compile_name="Net")
    assert [type(inspect.unwrap(fn).__self__).__name__ for fn, _ in calls] == ["Net", "Net"]


def test_compile_name_of_a_function(run: Run) -> None:
    _, calls = run("def step(x): return x\nstep(1)\nstep = step", compile_name="step")
    assert [fn.__name__ for fn, _ in calls] == ["step"]


def test_compile_name_never_assigned(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--compile nett: program\.py never assigns nett") as caught:
        run("net = open('ran', 'w')", compile_name="nett")
    assert caught.value.hint == "At top level it defines net."
    assert not (tmp_path / "ran").exists()


def test_compile_name_that_is_nothing_to_compile(run: Run) -> None:
    with pytest.raises(UsageError, match="it was never a module"):
        run("net = 5", compile_name="net")


def test_compile_name_leaves_what_the_script_compiles(run: Run) -> None:
    source = "import torch\nnet = torch.compile(torch.nn.ReLU(), backend=lambda gm, inputs: gm.forward)"
    result, calls = run(source, compile_name="net")
    assert (result.exit_code, calls) == (0, [])
