"""The sample models, compiled: equal to eager, with traces whose lines know where they come from."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from thunderfx import thunderfx
from thunderfx.trace import check, from_json
from thunderfx.trace.bound_symbol import DEL

from thunderfx_cli.loading.model import load_model
from thunderfx_cli.loading.target import parse_target
from thunderfx_cli.running.check import check_against_eager

SAMPLES = Path(__file__).parents[2] / "sample_models"
MODELS = ("mlp", "convnet", "nanogpt", "llama", "vit", "graph_break")


@pytest.fixture(scope="module", params=MODELS)
def compiled(request):
    loaded = load_model(parse_target(str(SAMPLES / f"{request.param}.py")), device="cpu", seed=0)
    obj = thunderfx(loaded.callable)
    result = check_against_eager(loaded, obj, seed=0, train=True)
    return request.param, loaded, obj, result


def test_equals_eager(compiled):
    _, _, obj, result = compiled
    assert result.ok, result.lines
    assert obj.fallbacks == []


def test_number_of_subgraphs(compiled):
    name, _, obj, _ = compiled
    expected = 2 if name == "graph_break" else 1
    assert len(obj.last_traces) == len(obj.last_backward_traces) == expected


def test_traces_are_well_formed_at_every_stage(compiled):
    _, _, obj, _ = compiled
    for info in obj.subgraph_infos:
        for stages in info.stages.values():
            for stage in stages:
                check(stage.trace)
                assert from_json(stage.trace.to_json()).python() == stage.trace.python()


def test_each_backward_line_has_the_users_source_line(compiled):
    name, _, obj, _ = compiled
    source = (SAMPLES / f"{name}.py").read_text().splitlines()
    for trace in obj.last_backward_traces:
        for line in trace.bound_symbols:
            if line.symbol == DEL:
                continue
            origin = trace.origin_of(line)
            assert origin is not None, line
            assert origin.file.endswith(f"{name}.py")
            assert source[origin.line - 1].strip() == origin.source


def test_stored_forward_replays(compiled):
    _, loaded, obj, _ = compiled
    if len(obj.last_traces) > 1 or any(line.has_tag("mutation") for line in obj.last_traces[0].bound_symbols):
        return  # the model's forward is more than one trace, or changes buffers that eager would change again
    trace = from_json(obj.last_traces[0].to_json())
    named = {**dict(loaded.callable.named_parameters()), **dict(loaded.callable.named_buffers())}
    free = list(loaded.args)
    inputs = [named[var.source] if var.source in named else free.pop(0) for var in trace.inputs]
    again = trace.python_callable()(*inputs)
    torch.manual_seed(0)
    fresh = copy.deepcopy(loaded.callable)
    want = fresh(*loaded.args)
    first = want if isinstance(want, torch.Tensor) else want[0]
    assert torch.allclose(again[0], first, rtol=2e-5, atol=1e-5)
