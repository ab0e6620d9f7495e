"""What ``thunderfx()`` returns: traces, records, and a module where a module went in."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from thunderfx import ThunderCompiler, ThunderFXCompiledObject, thunderfx
from thunderfx.dynamo.compiler import ThunderCompileError
from thunderfx.passes import pipeline
from thunderfx.trace import TraceCtx, from_json
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.switched = 0

    def train(self, mode: bool = True):
        self.switched += 1
        return super().train(mode)

    def forward(self, x):
        return self.inner(x).relu()

    def width(self) -> int:
        return 3

    def __getattr__(self, name):
        return 42 if name == "answer" else super().__getattr__(name)


@pytest.fixture
def net():
    torch._dynamo.reset()
    torch.manual_seed(0)
    return Net()


def test_traces_before_the_first_call(net):
    compiled = thunderfx(net)
    for name in ("last_traces", "last_backward_traces"):
        with pytest.warns(UserWarning, match="must be called first"):
            assert getattr(compiled, name) == []


def test_traces_after_a_step(net):
    compiled = thunderfx(net)
    compiled(torch.randn(2, 4)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (forward,), (backward,) = compiled.last_traces, compiled.last_backward_traces
    assert isinstance(forward, TraceCtx)
    assert "addmm" in str(forward)
    assert "threshold_backward" in str(backward)


def test_a_call_without_gradient_has_no_backward(net):
    compiled = thunderfx(net)
    with torch.no_grad():
        compiled(torch.randn(2, 4))
    assert len(compiled.last_traces) == 1
    assert compiled.last_backward_traces == []
    assert compiled.subgraph_infos[0].backward_status == "not needed"


def test_unknown_option_is_named(net):
    with pytest.raises(TypeError, match="'fullgrahp'"):
        thunderfx(net, fullgrahp=True)
    with pytest.raises(ValueError, match="unknown executor 'nvfusor'"):
        thunderfx(net, executors=["nvfusor"])
    with pytest.raises(TypeError, match="takes a list"):
        thunderfx(net, executors="torch")
    with pytest.raises(TypeError, match="function or a module"):
        thunderfx(3)


def test_decorated_function_and_method():
    @thunderfx
    def double(x):
        return x * 2

    class Holder:
        factor = 3

        @thunderfx
        def scale(self, x):
            return x * self.factor

    x = torch.randn(3)
    assert torch.equal(double(x), x * 2)
    assert double.__name__ == "double"
    assert torch.equal(Holder().scale(x), x * 3)
    assert len(Holder.scale.last_traces) == 1


def test_the_object_is_a_module_of_the_originals_class(net):
    compiled = thunderfx(net)
    assert isinstance(compiled, ThunderFXCompiledObject)
    assert isinstance(compiled, nn.Module)
    assert isinstance(compiled, Net)
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    assert compiled.width() == 3
    assert compiled.answer == 42
    with pytest.raises(AttributeError, match="nothing"):
        _ = compiled.nothing


def test_state_is_shared_both_ways(net):
    compiled = thunderfx(net)
    compiled.eval()
    assert not net.training and not net.inner.training
    assert net.switched == 1
    compiled.to(torch.float64)
    assert net.inner.weight.dtype == torch.float64
    compiled.inner = nn.Linear(4, 5)
    assert net.inner.out_features == 5
    net.extra = "here"
    assert compiled.extra == "here"


def test_hooks_registered_on_the_object_run(net):
    compiled = thunderfx(net)
    compiled.register_forward_hook(lambda module, args, output: output + 100)
    assert compiled(torch.randn(2, 4)).min() >= 100


def test_hooks_run_where_compilation_is_disabled(net):
    net.register_forward_hook(lambda module, args, output: output + 100)
    assert thunderfx(net, disable=True)(torch.randn(2, 4)).min() >= 90


def test_it_can_replace_a_submodule(net):
    model = nn.Sequential(thunderfx(net), nn.Linear(3, 2))
    assert list(model.state_dict()) == ["0.inner.weight", "0.inner.bias", "1.weight", "1.bias"]
    model(torch.randn(2, 4)).sum().backward()
    assert net.inner.weight.grad is not None
    assert len(model[0].last_traces) == 1


def test_a_model_that_holds_a_compiled_one_can_be_compiled(net):
    model = nn.Sequential(thunderfx(net), nn.Linear(3, 2))
    x = torch.randn(2, 4)
    want = model[1](net(x))
    outer = thunderfx(model)
    torch.testing.assert_close(outer(x), want)
    assert "0.inner.weight" in str(outer.last_traces[0])


def test_compiling_what_is_compiled_compiles_the_original(net):
    x = torch.randn(2, 4)
    for again in (thunderfx(thunderfx(net)), thunderfx(torch.compile(net, backend="eager"))):
        torch.testing.assert_close(again(x), net(x))
        assert again._tfx_original() is net


def test_deep_copy_has_its_own_state(net):
    compiled = thunderfx(net)
    other = copy.deepcopy(compiled)
    assert isinstance(other, ThunderFXCompiledObject)
    with torch.no_grad():
        other.inner.weight.zero_()
        other.inner.bias.zero_()
    x = torch.randn(2, 4)
    assert not other(x).any()
    torch.testing.assert_close(compiled(x), net(x))


def test_pickling_is_refused_with_what_to_do(net):
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(thunderfx(net))


def test_module_with_slots():
    class Slotted(nn.Module):
        __slots__ = ("note",)

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.note = "kept"

        def forward(self, x):
            return self.linear(x)

    compiled = thunderfx(Slotted())
    compiled(torch.randn(1, 2))
    assert compiled.note == "kept"


def test_the_compiler_by_itself_keeps_records(net):
    compiler = ThunderCompiler()
    torch.compile(net, backend=compiler)(torch.randn(2, 4)).sum().backward()
    (info,) = compiler.subgraph_infos
    assert (info.index, info.replaces, info.fallbacks) == (0, None, [])
    assert [stage.name for stage in info.stages["graph"]] == ["torch"]
    assert [stage.name for stage in info.stages["backward"]] == [
        "backward",
        "cse",
        "views",
        "dce",
        "in_place",
        "execution",
    ]
    assert "torch.nn.functional.linear" in str(info.trace("graph"))
    assert dict((name, str(kind)) for name, kind in info.inputs)["x"] == "cpu f32[2, 4]"
    assert all(time >= 0 for time in info.stage_times_ms.values())
    assert "forward:codegen" in info.stage_times_ms
    assert info.saved_for_backward_bytes == 2 * 3 * 4  # the relu's result
    assert info.backward_status == "ran"


def test_a_recompile_names_what_it_replaces(net):
    compiled = thunderfx(net, dynamic=False)
    for batch in (2, 3):
        compiled(torch.randn(batch, 4))
    assert [info.replaces for info in compiled.subgraph_infos] == [None, 0]


def test_graph_break_gives_two_subgraphs_and_says_why():
    def fn(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    torch._dynamo.reset()
    compiled = thunderfx(fn)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), fn(x))
    first, second = compiled.subgraph_infos
    assert first.graph_break.file == __file__
    assert "graph_break()" in first.graph_break.source
    assert second.graph_break is None


def broken(trace):
    raise RuntimeError("out of order")


def test_a_failing_pass_falls_back_with_its_reason(net, monkeypatch):
    monkeypatch.setattr(pipeline, "cse", broken)
    x = torch.randn(2, 4, requires_grad=True)
    compiled = thunderfx(net)
    compiled(x).sum().backward()
    got = x.grad.clone()
    x.grad = None
    net(x).sum().backward()
    torch.testing.assert_close(got, x.grad)
    assert [(item.where, item.stage, item.reason) for _, item in compiled.fallbacks] == [
        ("forward", "after forward", "RuntimeError: out of order"),
        ("backward", "after backward", "RuntimeError: out of order"),
    ]


def test_strict_raises_what_would_fall_back(net, monkeypatch):
    monkeypatch.setattr(pipeline, "cse", broken)
    with pytest.raises(Exception, match="out of order") as caught:
        thunderfx(net, strict=True)(torch.randn(2, 4))
    error = caught.value
    while not isinstance(error, ThunderCompileError):
        error = error.__cause__ or error.inner_exception
    assert isinstance(error.__cause__, RuntimeError)


def test_transforms_see_each_direction_and_leave_a_stage(net):
    seen = []

    def look(trace):
        seen.append(trace.name)
        return trace

    compiled = thunderfx(net, transforms=[look])
    compiled(torch.randn(2, 4)).sum().backward()
    assert seen == ["forward", "backward"]
    assert compiled.subgraph_infos[0].trace("forward", "transform:look") is not None
    with pytest.raises(TypeError, match="transform"):
        thunderfx(net, transforms=["look"])


def test_a_stored_trace_computes_the_same(net):
    compiled = thunderfx(net)
    x = torch.randn(2, 4)
    want = compiled(x)
    stored = from_json(compiled.last_traces[0].to_json())
    named = dict(net.named_parameters()) | {"x": x}
    got, *_ = stored.python_callable()(*(named[var.source] for var in stored.inputs))
    assert torch.equal(got, want)


def test_tracebacks_show_lines_of_the_trace(net):
    import traceback

    compiled = thunderfx(net)
    compiled(torch.randn(2, 4))
    program = compiled.last_traces[0].python_callable()
    with pytest.raises(RuntimeError) as caught:
        program(torch.randn(3, 4), torch.randn(3), torch.randn(2, 99))
    assert "addmm = aten.addmm.default(primals_2, primals_3, t)" in "".join(traceback.format_exception(caught.value))
    with pytest.raises(TypeError, match="takes 3 inputs"):
        program()
