"""``thunderfx bench`` and ``thunderfx run --backend``, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from stored import environment

from thunderfx_cli.store import Store

MODEL = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 16)
        self.b = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))

model = Net

def inputs():
    return (torch.randn(4, 8),)
"""
#: Changes its input, and returns a buffer that it counts in.
CHANGING = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        y = self.linear(x.clone())
        x.add_(1.0)
        self.calls.add_(1)
        return y * self.calls

model = Net

def inputs():
    return (torch.randn(4, 8),)
"""
SCRIPT = "import torch\n\nif __name__ == '__main__':\n    print(torch.ones(1))\n"
#: The copy that the second contender gets raises.
FAILING = """\
import torch

class Net(torch.nn.Linear):
    copies, number = 0, 0

    def __deepcopy__(self, memo):
        Net.copies += 1
        other = Net(8, 4)
        other.load_state_dict(self.state_dict())
        other.number = Net.copies
        return other

    def forward(self, x):
        if self.number == 2:
            raise ValueError("not the second")
        return super().forward(x)

model = Net(8, 4)
inputs = (torch.randn(4, 8),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    for name, text in {"model.py": MODEL, "script.py": SCRIPT, "failing.py": FAILING, "changing.py": CHANGING}.items():
        (folder / name).write_text(text)
    return folder


def command(folder, *args, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "thunderfx_cli", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        env=environment(OMP_NUM_THREADS="1", THUNDERFX_HOME=str(folder / "store")),
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


QUICK = ("--steps", "6", "--warmup", "1", "--backends", "eager,aot_eager,thunderfx")


def test_a_bench_is_a_table_and_can_be_compared(folder):
    out = command(
        folder, "bench", "model.py", *QUICK, "--executors", "torch", "--executors", "sdpa", "--name", "one"
    ).stdout
    rows = {line.split("  ")[0]: line for line in out.splitlines() if "ms" in line or " us" in line}
    assert list(rows) == ["eager", "aot_eager", "thunderfx", "thunderfx sdpa"]
    assert "not timed: lightning-thunder is not installed" in out
    stored = Store(folder / "store").resolve("one").run
    assert stored.mode == "bench" and len(stored.contenders) == 4
    for item in stored.contenders:
        assert item.error == "" and len(item.timings["step"].samples_ms) == 6
        assert item.graphs == (None if item.name == "eager" else 1)
        assert 0 < item.gradient_error < 1e-5 and item.output_error < 1e-5
    again = json.loads(
        command(folder, "bench", "model.py", *QUICK, "--executors", "torch", "--json", "--name", "two").stdout
    )
    assert [item["name"] for item in again["contenders"]] == ["eager", "aot_eager", "thunderfx"]
    out = command(folder, "diff", "one", "two").stdout
    assert "traces: neither run has any" in out
    assert any(line.startswith("aot_eager: step ") for line in out.splitlines())


def test_errors_are_those_of_the_first_inputs_and_buffers(folder):
    command(folder, "bench", "changing.py", *QUICK, "--executors", "torch", "--name", "changing")
    eager, aot, ours = Store(folder / "store").resolve("changing").run.contenders
    for item in (eager, ours):
        assert item.output_error < 1e-6 and item.gradient_error < 1e-6, item.name
    assert aot.output_error < 1e-6  # its gradient is wrong on torch 2.13: it reads the counter after the change


def test_a_backend_that_fails_is_named_and_the_others_are_kept(folder):
    done = command(folder, "bench", "failing.py", *QUICK, "--executors", "torch", code=1)
    assert "aot_eager failed: ValueError: not the second" in done.stdout
    assert done.stderr.startswith("error: aot_eager did not run the model: ")
    eager, aot, _ = Store(folder / "store").resolve("@1").run.contenders
    assert len(eager.timings["step"].samples_ms) == 6 and not aot.timings


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("bench", "script.py"), "error: script.py is a script, and bench times a model\n"),
        (("bench", "model.py", "--backends", "eager,nope"), "error: --backends: no backend 'nope'\n"),
        (("bench", "model.py", "--executors", "nope"), "error: --executors nope: unknown executor 'nope'"),
        (("bench", "model.py", "--backends", "lightning"), "error: --backends lightning: lightning-thunder is not"),
        (
            ("bench", "model.py", "--backends", "eager", "--executors", "sdpa"),
            "error: --executors are those of thunderfx",
        ),
        (("run", "model.py", "--backend", "nope"), "error: --backend nope: no such backend\n"),
        (("run", "model.py", "--backend", "eager", "--executors", "sdpa"), "error: --executors are those of thunderfx"),
    ],
)
def test_usage_errors(folder, args, message):
    assert command(folder, *args, code=2).stderr.startswith(message)


THUNDER = """\
import types

class Proxy:
    shape, dtype, device, requires_grad = (4, 8), "thunder.dtypes.float32", "cpu", False
    def __init__(self, name):
        self.name = name

def trace():
    x, y = Proxy("x"), Proxy("y")
    sym = types.SimpleNamespace(name="neg", module=types.ModuleType("torch"), executor=None, is_fusion=False)
    line = types.SimpleNamespace(sym=sym, args=(x,), kwargs={}, output=y, subsymbols=[])
    return types.SimpleNamespace(args=[x], bound_symbols=[line], output=y)

class Compiled:
    def __init__(self, fn):
        self.fn, self.last_traces, self.last_backward_traces = fn, [trace()], [trace()]
    def __call__(self, *args, **kwargs):
        return self.fn(*args, **kwargs)

thunderfx = Compiled
"""


def test_lightning_is_timed_and_read_where_it_is_installed(folder, tmp_path, monkeypatch):
    package = tmp_path / "thunder" / "dynamo"
    package.mkdir(parents=True)
    (tmp_path / "thunder" / "__init__.py").write_text("")
    (package / "__init__.py").write_text(THUNDER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    out = command(
        folder, "run", "model.py", "--backend", "lightning", "--steps", "2", "--check", "--name", "thunder"
    ).stdout
    assert "passed" in out
    assert "y = torch.neg(x)" in command(folder, "traces", "thunder", "--forward").stdout
    quick = ("--steps", "5", "--warmup", "1", "--backends", "eager,lightning")
    out = command(folder, "bench", "model.py", *quick).stdout
    assert any(line.startswith("lightning ") for line in out.splitlines()) and "not timed" not in out
    (package / "__init__.py").write_text("raise AttributeError('too new a torch')")
    done = command(folder, "bench", "model.py", *quick, code=2)
    assert "--backends lightning: lightning-thunder cannot be imported: AttributeError: too new a torch" in done.stderr


def test_other_backends_keep_their_graphs(folder):
    for backend in ("eager", "aot_eager"):
        command(folder, "run", "model.py", "--backend", backend, "--name", backend, "--steps", "2", "--check")
    eager, aot = (Store(folder / "store").resolve(name) for name in ("eager", "aot_eager"))
    assert eager.run.options["backend"] == "eager"
    assert eager.run.subgraphs[0].backward_status == "in eager"
    assert "torch.nn.functional.linear" in command(folder, "traces", "eager", "--forward").stdout
    assert aot.run.subgraphs[0].backward_status == "ran" and aot.run.subgraphs[0].saved_for_backward_bytes
    text = command(folder, "traces", "aot_eager").stdout
    assert "aten.addmm.default" in text and "aten.tanh_backward.default" in text
    command(folder, "run", "model.py", "--name", "ours", "--steps", "2")
    out = command(folder, "diff", "aot_eager", "ours").stdout
    assert "aten.addmm.default" not in "".join(line for line in out.splitlines() if line.startswith("  - "))


def test_inductors_graphs_are_kept_also_when_its_cache_is_warm(folder):
    for name in ("cold", "warm"):
        args = ("--backend", "inductor", "--dynamic", "--steps", "1", "--warmup", "0", "--name", name)
        command(folder, "run", "model.py", *args)
        (graph,) = Store(folder / "store").resolve(name).run.subgraphs
        assert graph.forward_ops > 2 and graph.backward_ops > 2, name
        assert graph.backward_status == "ran"
    assert "traces: no differences" in command(folder, "diff", "cold", "warm").stdout
    assert command(folder, "traces", "warm", "--why", "--raw", code=2).stderr.startswith(
        "error: --why and --raw do not"
    )
