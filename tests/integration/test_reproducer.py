"""Scripts that run one subgraph alone."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_semantics import MODELS
from thunderfx import ThunderCompiler, thunderfx
from thunderfx.dynamo.reproducer import ReproducerError

SAMPLES = Path(__file__).parents[2] / "sample_models"


def run_script(path, *more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run([sys.executable, *more, str(path)], capture_output=True, text=True, env=env, timeout=280)


def saved(fn, args, folder, **options):
    torch._dynamo.reset()
    compiled = thunderfx(fn)
    compiled(*args)
    return compiled.save_reproducer_to_folder(folder, **options)


def result_of(path, capsys):
    torch._dynamo.reset()
    status = runpy.run_path(str(path))["main"]()
    return status, capsys.readouterr().out


def test_llama_runs_alone_and_agrees_with_eager(tmp_path):
    sample = runpy.run_path(str(SAMPLES / "llama.py"))
    (path,) = saved(sample["model"](), sample["inputs"](), tmp_path)
    done = run_script(path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "output 0: agrees" in done.stdout and "gradient 38: agrees" in done.stdout
    assert done.stdout.splitlines()[-1] == "thunderfx agrees with eager"


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_can_be_reproduced(name, tmp_path, capsys):
    paths = saved(*MODELS[name](), tmp_path)
    for path in paths:
        status, printed = result_of(path, capsys)
        assert status == 0, printed


def test_inputs_have_the_recorded_layout_and_the_same_values_each_time(tmp_path):
    image = torch.randn(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    index = torch.tensor([[3, 1], [2, 0]]).t()
    (path,) = saved(
        lambda a, b, c: (a.sin(), b + c), (image, index, torch.ones(1, dtype=torch.int16).expand(2)), tmp_path
    )
    made, again = (runpy.run_path(str(path))["inputs"]() for _ in range(2))
    assert made[0].shape == image.shape and made[0].stride() == image.stride()
    assert made[0].dtype == torch.float64 and made[0].requires_grad and made[0].is_leaf
    assert torch.equal(made[0], again[0])
    assert torch.equal(made[1], index) and made[1].stride() == (1, 2)
    assert made[2].stride() == (0,) and made[2].dtype == torch.int16


def test_large_integers_stay_within_the_range_that_was_seen(tmp_path, capsys):
    table, ids = torch.nn.Embedding(50, 4), torch.randint(0, 50, (200,))
    (path,) = saved(table, (ids,), tmp_path)
    text = path.read_text()
    assert f"low={ids.min()}, high={ids.max()}" in text
    assert result_of(path, capsys)[0] == 0


def test_dynamic_sizes_are_those_of_the_example(tmp_path, capsys):
    torch._dynamo.reset()
    compiled = thunderfx(lambda x: (x * x.shape[0]).sum(), dynamic=True)
    compiled(torch.randn(7, 3, requires_grad=True))
    (path,) = compiled.save_reproducer_to_folder(tmp_path)
    assert "tensor((7, 3), (3, 1)" in path.read_text()
    assert result_of(path, capsys)[0] == 0


def test_a_wrong_compiler_is_found_out(tmp_path, capsys, monkeypatch):
    (path,) = saved(lambda x: x.sin(), (torch.randn(3, requires_grad=True),), tmp_path)
    wrong = lambda self, graph, inputs, **options: lambda *args: [out + 1 for out in graph(*args)]  # noqa: E731
    monkeypatch.setattr(ThunderCompiler, "__call__", wrong)
    status, printed = result_of(path, capsys)
    assert status == 1
    assert "output 0: Tensor-likes are not close" in printed and "thunderfx differs from eager" in printed


def test_what_a_script_cannot_hold_is_named_and_the_rest_is_saved(tmp_path):
    torch._dynamo.reset()

    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y.cos()

    compiled = thunderfx(fn)
    compiled(torch.randn(3))
    compiled.subgraph_infos[-1].examples[0] = None
    with pytest.raises(ReproducerError, match=r"subgraph 1: its input .* cannot be rebuilt .*1 of 2 subgraphs"):
        compiled.save_reproducer_to_folder(tmp_path / "a")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["subgraph0.py"]


def test_benchmark_form_times_every_backend(tmp_path):
    pytest.importorskip("pytest_benchmark")
    (path,) = saved(torch.nn.Linear(4, 4), (torch.randn(2, 4),), tmp_path, use_pytest_benchmark=True)
    assert path.name == "test_subgraph0.py"
    done = run_script(
        path, "-m", "pytest", "-p", "no:cacheprovider", "--benchmark-max-time=0.01", "--benchmark-min-rounds=1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for backend in ("eager", "aot_eager", "inductor", "thunderfx"):
        assert f"test_step[forward and backward-{backend}]" in done.stdout
