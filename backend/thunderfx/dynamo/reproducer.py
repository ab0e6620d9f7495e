"""Stand-alone scripts that run one subgraph in eager and compiled."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from thunderfx.lowering.value_types import hint
from thunderfx.trace import Constant, OpaqueType, TraceCtx

if TYPE_CHECKING:
    from thunderfx.dynamo.subgraph import SubgraphInfo

MOST_CONSTANT_BYTES = 1 << 16  #: a tensor constant beyond this size is not written into a script
MOST_LITERAL_VALUES = 64  #: an integer tensor with at most so many elements is written out
#: What Dynamo hands over, and what it takes of it from a user's script.
_AS_THE_USER_WRITES = {
    "torch.ops.higher_order.tag_activation_checkpoint(": "torch.utils.checkpoint.checkpoint(",
    "operator.setitem(": "setitem(",
}
_SETITEM = """def setitem(target, index, value):
    target[index] = value


"""
_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


class ReproducerError(RuntimeError):
    """A subgraph that cannot be written as a script of its own; the text says what it holds that stands in the way."""


@dataclasses.dataclass(frozen=True)
class TensorExample:
    """What is kept of a tensor that a subgraph was compiled for: sizes and strides in elements.

    Of integers, which are often indices that must fit, it is ``values`` where there are few, and else ``low`` and
    ``high``, the least and the greatest. All are ``None`` for other dtypes and where reading would wait for a device.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    low: int | None = None
    high: int | None = None
    values: tuple[Any, ...] | None = None  #: as they lie in memory, from the first element on


def example_of(value: Any) -> Any:
    """A record of an example input that holds no memory; ``None`` where it cannot be rebuilt."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return None
        shape, stride = tuple(map(hint, value.shape)), tuple(map(hint, value.stride()))
        if None in shape or None in stride:
            return None
        example = TensorExample(shape, stride, value.dtype, str(value.device), value.requires_grad)  # type: ignore[arg-type]
        if value.dtype not in _INTEGERS or not value.numel() or value.device.type != "cpu":
            return example
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))  # type: ignore[operator,misc]
        if extent <= MOST_LITERAL_VALUES:
            return dataclasses.replace(example, values=tuple(value.as_strided((extent,), (1,)).tolist()))
        low, high = (int(bound) for bound in torch.aminmax(value))
        return dataclasses.replace(example, low=low, high=high)
    if isinstance(value, torch.SymInt):
        return hint(value)
    return value if isinstance(value, (bool, int, float, complex)) else None


def save_reproducers(infos: Iterable[SubgraphInfo], folder: Path, *, benchmark: bool) -> list[Path]:
    """Write one script per subgraph; returns their paths. See ``ThunderCompiler.save_reproducer_to_folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    refused: list[str] = []
    for info in infos:
        try:
            text = benchmark_text(info) if benchmark else script_text(info)
        except ReproducerError as e:
            refused.append(f"subgraph {info.index}: {e}")
            continue
        path = folder / f"{'test_' if benchmark else ''}subgraph{info.index}.py"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    if refused:
        saved = (
            f"{len(paths)} of {len(paths) + len(refused)} subgraphs were saved in {folder}"
            if paths
            else "none was saved"
        )
        raise ReproducerError("; ".join(refused) + f" ({saved})")
    return paths


def script_text(info: SubgraphInfo) -> str:
    """A script that compares outputs, gradients and changed inputs with eager; it exits with 1 where they differ."""
    usage = f"    python subgraph{info.index}.py"
    return _text(info, "Runs the function below in eager and compiled, and compares.", usage, _COMPARISON)


def benchmark_text(info: SubgraphInfo) -> str:
    """A pytest-benchmark file that times eager, aot_eager, inductor and thunderfx."""
    usage = f"    pip install pytest pytest-benchmark\n    pytest test_subgraph{info.index}.py"
    return _text(info, "Times the function below in eager and compiled by each backend.", usage, _BENCHMARK)


def _text(info: SubgraphInfo, purpose: str, usage: str, ending: str) -> str:
    trace = info.trace("graph", "torch")
    if trace is None:
        raise ReproducerError("its torch-level trace was not recorded")
    imports, constants = _constants(trace)
    graph = re.sub(r"\A(?:import .*\n|aten = .*\n|\n)+", "", trace.python())
    for given, written in _AS_THE_USER_WRITES.items():
        if given in graph:
            graph = graph.replace(given, written)
            constants += _SETITEM if written == "setitem(" else ""
    used = {"torch", *re.findall(r"\b(operator|math)\.", graph)}
    extra = "import pytest\n" if ending is _BENCHMARK else ""
    heads = sorted(used | ({"base64"} if "base64." in constants else set()) - {"torch"})
    standard = "".join(f"import {name}\n" for name in heads if name != "torch")
    what = " ".join((info.code or "a graph").split()).replace('"""', "").replace("\\", "/")
    return _TEMPLATE.format(
        index=info.index,
        what=what,
        purpose=purpose,
        usage=usage,
        versions=f"torch {torch.__version__}, Python {platform.python_version()}",
        standard=f"{standard}\n" if standard else "",
        imports=f"{extra}import torch\n{imports}from thunderfx import ThunderCompiler",
        constants=constants,
        graph=graph.rstrip(),
        inputs="\n".join(f"        {text},  # {source}" for text, source in _inputs(info, trace)),
        ending=ending,
    )


def _inputs(info: SubgraphInfo, trace: TraceCtx) -> list[tuple[str, str]]:
    """The expression that rebuilds each input, and what the user calls it."""
    if len(info.examples) != len(trace.inputs):
        raise ReproducerError("its example inputs were not recorded")
    rows: list[tuple[str, str]] = []
    for example, var in zip(info.examples, trace.inputs, strict=True):
        name = " ".join((var.source or var.name).split())
        if example is None:
            raise ReproducerError(f"its input {name} ({var.type}) cannot be rebuilt from what is known of it")
        rows.append((_expression(example, name) if isinstance(example, TensorExample) else repr(example), name))
    return rows


def _expression(example: TensorExample, name: str) -> str:
    options = [str(example.shape), str(example.stride), str(example.dtype)]
    if example.device != "cpu":
        options.append(f"device={example.device!r}")
    if example.requires_grad:
        options.append("requires_grad=True")
    if example.values is not None:
        options.append(f"values={list(example.values)}")
    if example.low is not None:
        options += [f"low={example.low}", f"high={example.high}"]
    if name.endswith("var"):
        options.append("positive=True")
    return f"tensor({', '.join(options)})"


def _constants(trace: TraceCtx) -> tuple[str, str]:
    """Import lines and definitions of the objects that the trace refers to by name."""
    imports: list[str] = []
    definitions: list[str] = []
    for constant in trace.constants:
        if isinstance(constant.value, torch.Tensor):
            definitions.append(f"{constant.name} = {_tensor_literal(constant)}\n")
        elif isinstance(constant.type, OpaqueType):
            imports.append(_import(constant))
        else:
            definitions.append(f"{constant.name} = {constant.value!r}\n")
    return "".join(sorted(imports)), "".join(definitions) + ("\n\n" if definitions else "")


def _tensor_literal(constant: Constant) -> str:
    value = constant.value.detach()
    if value.layout is not torch.strided or value.numel() * value.itemsize > MOST_CONSTANT_BYTES:
        raise ReproducerError(f"its constant {constant.name} ({constant.type}) is too large to be written out")
    flat = value.cpu().contiguous().reshape(-1)
    data = base64.b64encode(bytes(flat.view(torch.uint8).tolist())).decode()
    raw = f'torch.frombuffer(bytearray(base64.b64decode("{data}")), dtype={value.dtype})'
    if not value.numel():
        raw = f"torch.empty(0, dtype={value.dtype})"
    return f"{raw}.reshape({tuple(value.shape)}).to({str(value.device)!r})"


def _import(constant: Constant) -> str:
    """A line that imports a function by the name that its module gives it."""
    module, name = getattr(constant.value, "__module__", None), getattr(constant.value, "__name__", "")
    for place in (module, "torch._C", "torch._C._functorch"):
        try:
            found = getattr(importlib.import_module(place), name, None) if place and name.isidentifier() else None
        except ImportError:
            continue
        if found is constant.value and place != "__main__":
            alias = "" if name == constant.name else f" as {constant.name}"
            return f"from {place} import {name}{alias}\n"
    raise ReproducerError(f"it refers to {constant.name} ({constant.type}), which no import can name")


_TEMPLATE = '''"""Subgraph {index} of {what}.

{purpose}

{usage}

Written by thunderfx with {versions}.
"""

{standard}{imports}

SEED = 0


{constants}{graph}


def tensor(shape, stride, dtype, device="cpu", requires_grad=False, low=0, high=1, positive=False, values=None):
    """The given values in memory, or random ones: normal ones, or integers from low to high."""
    size = 1 + sum((n - 1) * step for n, step in zip(shape, stride)) if 0 not in shape else 0
    if values is not None:
        values = torch.tensor(values)
    elif dtype.is_floating_point or dtype.is_complex:
        full = torch.complex64 if dtype.is_complex else torch.float32 if dtype.itemsize < 4 else dtype
        values = torch.rand(size, dtype=full) + 0.5 if positive else torch.randn(size, dtype=full)
        if requires_grad and len(shape) > 1:  # weights: keep the size of what they are multiplied with
            values = values / max(1, torch.Size(shape[1:]).numel()) ** 0.5
    else:
        values = torch.randint(low, min(high + 1, 2**63 - 1), (size,))
    return values.to(dtype).to(device).as_strided(shape, stride).detach().requires_grad_(requires_grad)


def inputs():
    torch.manual_seed(SEED)
    return [
{inputs}
    ]


def run(*args):
    return graph(list(args))


{ending}'''

_COMPARISON = '''def tensors(value):
    """Tensors in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [found for item in value for found in tensors(item)] if isinstance(value, (list, tuple)) else []


def observe(fn):
    """Outputs, gradients, and inputs afterwards."""
    args = inputs()
    leaves = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad]
    given = [arg.clone() if arg.requires_grad else arg for arg in tensors(args)]  # an input may be changed in place
    found = iter(given)
    torch.manual_seed(SEED)
    outputs = tensors(fn(*[next(found) if isinstance(arg, torch.Tensor) else arg for arg in args]))
    differentiable = [out for out in outputs if out.requires_grad]
    if differentiable:
        sum((out.abs() if out.is_complex() else out).double().sum() for out in differentiable).backward()
    return {"output": outputs, "gradient": [leaf.grad for leaf in leaves], "input afterwards": given}


def main():
    want = observe(run)
    got = observe(torch.compile(run, backend=ThunderCompiler(), fullgraph=True))
    failed = False
    for what in want:
        for number, (left, right) in enumerate(zip(want[what], got[what], strict=True)):
            if left is None or right is None:
                message = "" if left is right else "one of them is None"
            else:
                message = ""
                try:
                    torch.testing.assert_close(right, left, equal_nan=True)
                except AssertionError as e:
                    message = str(e)
            failed = failed or bool(message)
            if what != "input afterwards" or message:
                print(f"{what} {number}: {message or 'agrees'}")
    print("thunderfx differs from eager" if failed else "thunderfx agrees with eager")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
'''

_BENCHMARK = '''def compiled(backend):
    torch._dynamo.reset()
    if backend == "eager":
        return run
    return torch.compile(run, backend=ThunderCompiler() if backend == "thunderfx" else backend, fullgraph=True)


def step(fn, args, backward):
    """One call and, with backward, the gradients of all inputs that want one."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            arg.grad = None
    outputs = fn(*args)
    if backward:
        differentiable = [out for out in outputs if isinstance(out, torch.Tensor) and out.requires_grad]
        torch.autograd.backward([(out.abs() if out.is_complex() else out).sum() for out in differentiable])
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "thunderfx"])
@pytest.mark.parametrize("direction", ["forward", "forward and backward"])
def test_step(benchmark, backend, direction):
    args = inputs()
    backward = direction != "forward"
    if backward and not any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args):
        pytest.skip("no input requires a gradient")
    fn = compiled(backend)
    for _ in range(3):
        step(fn, args, backward)
    benchmark.group = direction
    benchmark(step, fn, args, backward)
'''
