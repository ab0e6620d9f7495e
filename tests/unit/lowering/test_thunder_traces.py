"""lightning-thunder's traces as ours, from stand-ins that have the attributes of 0.2.6's."""

from __future__ import annotations

import types
from types import SimpleNamespace as Object

from thunderfx.lowering.thunder_traces import from_thunder
from thunderfx.trace import check, from_json, to_json
from thunderfx.trace.diff import diff_traces

CPU = Object(device_str=lambda: "cpu")


def proxy(name, *shape):
    return Object(name=name, shape=shape, dtype="thunder.dtypes.float32", device=CPU, requires_grad=False)


def bound(name, args, output=None, module=None, kwargs=None, members=(), executor=None, is_fusion=False):
    sym = Object(name=name, module=module, executor=executor, is_fusion=is_fusion)
    return Object(sym=sym, args=args, kwargs=kwargs or {}, output=output, subsymbols=list(members))


def example():
    torch, prims = types.ModuleType("torch"), types.ModuleType("thunder.core.prims")
    x, w, y, z, s = proxy("x", 2, 4), proxy("w", 4, 4), proxy("y", 2, 4), proxy("z", 2, 4), proxy("s", 2)
    nvfuser = Object(name="nvfuser")
    lines = [
        bound("unpack_trivial", (x,), x, prims),
        bound("matmul", (x, w), y, torch, members=[bound("matmul", (x, w), y, prims)]),
        bound("python_del", (w,), None, prims),
        bound(
            "nvFusion0",
            (y,),
            (z, s),
            None,
            members=[
                bound("mul", (y, 2.0), z, prims),
                bound("sum", (z, (1,)), s, prims, kwargs={"dtype": None}),
            ],
            executor=nvfuser,
            is_fusion=True,
        ),
        bound("python_return", ((z, [s]),), None, prims),
    ]
    return Object(args=[[x, w], []], bound_symbols=lines, output=(z, [s]))


def test_lines_fusions_and_outputs():
    trace = from_thunder(example(), "forward")
    check(trace)
    assert trace.python() == (
        "import torch\n\ndef forward(args):\n  x, w = args\n  args.clear()\n  y = torch.matmul(x, w)\n  del w\n"
        "  (z, s) = thunder.nvFusion0(y)\n  return (z, [s])\n"
    )
    fusion = trace.bound_symbols[-1]
    assert (fusion.executor, fusion.tags) == ("nvfuser", ("fused",))
    assert [line.symbol for line in fusion.subsymbols] == ["prims.mul", "prims.sum"]
    assert str(trace.inputs[0].type) == "cpu f32[2, 4]"


def test_it_is_stored_and_compared_like_any_trace():
    trace = from_thunder(example(), "forward")
    assert from_json(to_json(trace)) == trace
    assert diff_traces(trace, trace).is_empty
