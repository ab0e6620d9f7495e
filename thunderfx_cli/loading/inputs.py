"""Inputs of a model: the ``--input`` grammar, merging with the file's own inputs, and moving them to a device."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunderfx_cli.errors import UsageError

if TYPE_CHECKING:
    import torch

GRAMMAR = "Write NAME=DIMxDIM:DTYPE, for example --input x=4x64:f32 or --input tokens=2x16:i64:0..100."
_DTYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool", "c64": "complex64",
}  # fmt: skip
_SPEC = re.compile(
    r"(?P<name>[^\W\d]\w*)=(?P<dims>(\d+(x\d+)*)?)(:(?P<dtype>\w+)(:(?P<low>[^:]+)\.\.(?P<high>[^:]+))?)?\Z"
)


@dataclass(frozen=True)
class InputSpec:
    """One ``--input``. ``dtype`` is torch's name for it; values lie in ``[low, high)`` where a range was given."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None


def parse_input(text: str) -> InputSpec:
    """Read ``name=DIMxDIM:dtype:low..high``; dtype (f32) and range are optional, and no dimensions make a scalar."""
    found = _SPEC.match(text.strip())
    if not found:
        raise UsageError(f"--input {text}: not understood", hint=GRAMMAR)
    short = found["dtype"] or "f32"
    dtype = _DTYPES.get(short, short)
    if dtype not in _DTYPES.values():
        raise UsageError(f"--input {text}: no dtype {short!r}", hint=f"There are {', '.join(_DTYPES)}.")
    shape = tuple(int(dim) for dim in found["dims"].split("x")) if found["dims"] else ()
    low, high = _range(text, found["low"], found["high"], integer=dtype.startswith(("int", "uint")))
    if low is not None and dtype in ("bool", "complex64"):
        raise UsageError(f"--input {text}: {short} takes no range")
    return InputSpec(found["name"], shape, dtype, low, high)


def _range(text: str, low: str | None, high: str | None, *, integer: bool) -> tuple[float | None, float | None]:
    if low is None or high is None:
        return None, None
    try:
        numbers = (int(low), int(high)) if integer else (float(low), float(high))
    except ValueError as exc:
        raise UsageError(f"--input {text}: {low}..{high} is not a range of the dtype", hint=GRAMMAR) from exc
    if not numbers[0] < numbers[1]:
        raise UsageError(f"--input {text}: the range {low}..{high} is empty", hint="The upper end is excluded.")
    return numbers


def make_tensor(spec: InputSpec) -> torch.Tensor:
    """Random values on the CPU: standard normal or uniform in the range; integers default to 0 and 1."""
    import torch

    dtype: torch.dtype = getattr(torch, spec.dtype)
    if dtype.is_floating_point or dtype.is_complex:
        if spec.low is None or spec.high is None:
            return torch.randn(spec.shape, dtype=dtype)
        return (torch.rand(spec.shape, dtype=torch.float64) * (spec.high - spec.low) + spec.low).to(dtype)
    low, high = (0, 2) if spec.low is None or spec.high is None else (int(spec.low), int(spec.high))
    if dtype != torch.bool and not (torch.iinfo(dtype).min <= low and high - 1 <= torch.iinfo(dtype).max):
        raise UsageError(f"--input {spec.name}: {low}..{high} does not fit {spec.dtype}")
    return torch.randint(low, high, spec.shape, dtype=torch.int64).to(dtype)


def as_arguments(value: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``inputs`` of a model file as ``(args, kwargs)``: a tuple or list are positions, a mapping is by name."""
    if isinstance(value, Mapping):
        return (), {str(key): item for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(value), {}
    return (value,), {}


def forward_signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a function or of a module's ``forward``; ``None`` where Python does not know it (builtins)."""
    import torch

    try:
        return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return None


def example_option(signature: inspect.Signature | None) -> str:
    """``--input x=4x64:f32 ...`` with the names of the required parameters."""
    names = [parameter.name for parameter in _required(signature)] if signature else []
    return " ".join(f"--input {name}=4x64:f32" for name in names or ["x"])


def merge_specs(
    specs: Sequence[InputSpec], args: tuple[Any, ...], kwargs: dict[str, Any], signature: inspect.Signature | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace or add the inputs that ``specs`` name; the others keep their places.

    Raises :class:`UsageError` for a name that the callable does not have, or for a required one left without a value.
    """
    tensors = {spec.name: make_tensor(spec) for spec in specs}
    if signature is None:  # nothing to match names with: in the order given
        return (*args, *tensors.values()), kwargs
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    unknown = [name for name in tensors if not _is_named(parameters.get(name)) and name not in kwargs]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        names = ", ".join(name for name, parameter in parameters.items() if _is_named(parameter)) or "none"
        raise UsageError(f"--input {unknown[0]}: the model has no such parameter", hint=f"It has: {names}.")
    merged, by_name = list(args), dict(kwargs)
    positional = [name for name, parameter in parameters.items() if parameter.kind in _POSITIONAL]
    for index, name in enumerate(positional):
        if name not in tensors:
            continue
        if index < len(merged):
            merged[index] = tensors[name]
        elif index == len(merged) and name not in by_name:
            merged.append(tensors[name])
        else:
            by_name[name] = tensors[name]
    for name in tensors:
        if name not in positional:
            if name in unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
                merged.append(tensors[name])
            else:
                by_name[name] = tensors[name]
    _check_complete(signature, tuple(merged), by_name)
    return tuple(merged), by_name


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_named(parameter: inspect.Parameter | None) -> bool:
    return parameter is not None and parameter.kind not in _VARIADIC


def _required(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [p for p in signature.parameters.values() if p.default is p.empty and p.kind not in _VARIADIC]


def required_names(signature: inspect.Signature | None) -> list[str]:
    """Names of the parameters without a default."""
    return [parameter.name for parameter in _required(signature)] if signature else []


def _check_complete(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        supplied = set(signature.bind_partial(*args).arguments) | set(kwargs)
        missing = [name for name in required_names(signature) if name not in supplied]
        wanted = " ".join(f"--input {name}=4x64:f32" for name in missing)
        raise UsageError(f"the inputs do not fit the model: {exc}", hint=f"Add {wanted}." if missing else "") from exc


def move_to(value: Any, device: torch.device | str) -> Any:
    """``value`` with every tensor in it on ``device``; leaves that require gradients stay leaves."""
    import torch
    from torch.utils import _pytree

    def move(tensor: torch.Tensor) -> torch.Tensor:
        moved = tensor.to(device)
        if moved is not tensor and tensor.is_leaf and tensor.requires_grad:
            return moved.detach().requires_grad_()
        return moved

    return _pytree.tree_map_only(torch.Tensor, move, value)
