from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from thunderfx_cli.errors import UsageError, UserCodeError
from thunderfx_cli.loading.model import LoadedModel, load_model
from thunderfx_cli.loading.target import parse_target

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.linear = torch.nn.Linear(n, n)
    def forward(self, x, scale=None):
        return self.linear(x)
"""
Load = Callable[..., LoadedModel]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Write ``source`` to ``net_file.py`` and load it; the interpreter's paths and modules are put back."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), dict(sys.modules)

    def load(source: str, attr: str = "", **options: object) -> LoadedModel:
        (tmp_path / "net_file.py").write_text(NET + textwrap.dedent(source))
        return load_model(parse_target("net_file.py" + (f":{attr}" if attr else "")), **options)  # type: ignore[arg-type]

    yield load
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "attr"),
    [
        ("model = Net()", ""),
        ("model = Net", ""),
        ("def model(): return Net()", ""),
        ("def model(width=4): return Net(width)", ""),
        ("Model = Net", ""),
        ("", "Net"),
        ("net = Net()", "net"),
        ("class Zoo:\n    small = Net()", "Zoo.small"),
        ("model = torch.compile(Net())", ""),
        ("def build(): return Net", "build"),
    ],
)
def test_what_a_model_can_be(load: Load, source: str, attr: str) -> None:
    loaded = load(source + "\ninputs = torch.ones(2, 4)", attr)
    assert type(loaded.callable).__name__ == "Net"
    assert loaded.callable(*loaded.args, **loaded.kwargs).shape == (2, 4)
    assert loaded.name == (f"net_file:{attr}" if attr else "net_file")


def test_function_with_parameters_is_compiled_itself(load: Load) -> None:
    loaded = load("def model(x): return x + 1", input_specs=["x=:f32"])
    assert loaded.callable(torch.tensor(1.0)) == 2
    assert loaded.args[0].shape == ()


@pytest.mark.parametrize("compiler", ["torch.compile", "thunderfx"])
def test_compiled_module_is_unwrapped(load: Load, compiler: str) -> None:
    source = f"from thunderfx import thunderfx\nplain = Net()\nmodel = {compiler}(plain)\ninputs = torch.ones(2, 4)"
    loaded = load(source, "model")
    assert loaded.callable is sys.modules["net_file"].plain
    assert loaded.name == "net_file"


def test_compiled_function_is_unwrapped(load: Load) -> None:
    loaded = load("def plain(x): return x\nmodel = torch.compile(torch.compile(plain))", input_specs=["x=2"])
    assert loaded.callable is sys.modules["net_file"].plain


@pytest.mark.parametrize(
    ("inputs", "count", "names"),
    [
        ("inputs = torch.ones(2, 4)", 1, set()),
        ("inputs = (torch.ones(2, 4), 2)", 2, set()),
        ("example_inputs = [torch.ones(2, 4)]", 1, set()),
        ("def inputs(): return {'x': torch.ones(2, 4)}", 0, {"x"}),
        ("inputs = lambda: torch.ones(2, 4)", 1, set()),
    ],
)
def test_forms_of_inputs(load: Load, inputs: str, count: int, names: set[str]) -> None:
    loaded = load(f"model = Net()\n{inputs}")
    assert (len(loaded.args), set(loaded.kwargs)) == (count, names)


def test_input_option_overrides_by_name(load: Load) -> None:
    loaded = load("model = Net()\ninputs = torch.ones(2, 4)", input_specs=["scale=3:i32"])
    assert [tuple(value.shape) for value in loaded.args] == [(2, 4), (3,)]
    loaded = load("model = Net()\ninputs = torch.ones(2, 4)", input_specs=["x=5x4"])
    assert loaded.args[0].shape == (5, 4)


def test_no_inputs_shows_an_example(load: Load) -> None:
    with pytest.raises(UsageError, match=r"no inputs for net_file\.py") as caught:
        load("model = Net()")
    assert "--input x=4x64:f32" in caught.value.hint


def test_model_without_parameters_needs_no_inputs(load: Load) -> None:
    loaded = load("class Model(Net):\n    def forward(self): return self.linear.weight.sum()")
    assert (loaded.args, loaded.kwargs) == ((), {})


def test_loss(load: Load) -> None:
    source = "model = Net()\ninputs = torch.ones(2, 4)\n"
    assert load(source).loss is None
    loss = load(source + "def loss(output): return output.sum()").loss
    assert loss is not None and loss(torch.ones(3)) == 3
    with pytest.warns(UserWarning, match="not a function of the output alone"):
        assert load(source + "loss = torch.nn.CrossEntropyLoss()").loss is None


def test_seed_makes_runs_equal(load: Load) -> None:
    source = "model = Net()\ndef inputs(): return torch.randn(2, 4)"
    first, second, other = load(source, seed=1), load(source, seed=1), load(source, seed=2)
    assert torch.equal(first.callable.linear.weight, second.callable.linear.weight)  # type: ignore[attr-defined]
    assert torch.equal(first.args[0], second.args[0])
    assert not torch.equal(first.args[0], other.args[0])


def test_device_moves_model_and_inputs(load: Load) -> None:
    loaded = load("model = Net()\ninputs = {'x': torch.ones(2, 4)}", device="meta")
    assert loaded.callable.linear.weight.device.type == "meta"  # type: ignore[attr-defined]
    assert loaded.kwargs["x"].device.type == "meta"


def test_file_runs_once_and_imports_its_neighbours(load: Load, tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_net.py").write_text("runs = []")
    source = "import neighbour_of_net\nneighbour_of_net.runs.append(1)\nmodel = Net()\ninputs = torch.ones(2, 4)"
    loaded = load(source)
    assert sys.modules["neighbour_of_net"].runs == [1]
    assert sys.modules[type(loaded.callable).__module__].Net is type(loaded.callable)


def test_name_of_a_standard_module_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "calendar.py"
    file.write_text("import torch\nmodel = torch.nn.ReLU()\ninputs = torch.ones(2)")
    monkeypatch.setattr(sys, "path", list(sys.path))
    import calendar

    assert load_model(parse_target(str(file))).name == "calendar"
    assert sys.modules["calendar"] is calendar


def test_module_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    loaded = load_model(parse_target("torch.nn:ReLU"), input_specs=["input=2x3"])
    assert (loaded.name, type(loaded.callable)) == ("torch.nn:ReLU", torch.nn.ReLU)
    with pytest.raises(UsageError, match=r"no module 'torch\.nope'"):
        load_model(parse_target("torch.nope:ReLU"))


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("raise ValueError('boom')", "ValueError: boom", 9),
        ("def model():\n    return Net('four')", "TypeError", 6),
        ("model = Net()\ndef inputs():\n    return [][1]", "IndexError: list index out of range", 11),
        ("import sys\nsys.exit(3)", r"the file called sys.exit\(3\)", 10),
        ("import torch.no_such_module", "ModuleNotFoundError: No module named 'torch.no_such_module'", 9),
        ("x = = 1", "SyntaxError: invalid syntax\n    x = = 1", 9),
        ("def model():\n    return 5", r"net_file.py:model\(\) returned a int, which cannot be called", 9),
        ("def model(): return Net()\ndef inputs(n): return n", "inputs must not need arguments; it has n", 10),
        ("class Model:\n    def __init__(self, n): ...", "is a class that needs n", None),
        ("model = 5", "net_file.py:model is a int, which cannot be called", None),
    ],
)
def test_failures_name_the_users_line(load: Load, source: str, message: str, line: int | None) -> None:
    with pytest.raises(UserCodeError, match=message) as caught:
        load(source)
    assert caught.value.where == (f"net_file.py:{line}" if line else "")


def test_file_that_fails_is_not_left_in_the_modules(load: Load) -> None:
    with pytest.raises(UserCodeError):
        load("raise ValueError")
    assert "net_file" not in sys.modules


def test_failure_in_an_imported_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "broken_neighbour.py").write_text("\ndef f(:\n")
    with pytest.raises(UserCodeError, match="SyntaxError") as caught:
        load("import broken_neighbour")
    assert caught.value.where == "broken_neighbour.py:2"
    assert isinstance(caught.value.__cause__, SyntaxError)


def test_no_model_says_what_there_is(load: Load) -> None:
    with pytest.raises(UsageError, match=r"net_file\.py has no model or Model") as caught:
        load("def build(): ...")
    assert caught.value.hint == "The file defines Net, build. Try net_file.py:Net"
    with pytest.raises(UsageError, match=r"net_file\.py has no Nett") as caught:
        load("", "Nett")
    assert caught.value.hint == "The file defines Net."
