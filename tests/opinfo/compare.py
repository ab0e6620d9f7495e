"""One entry of torch's operator database through a backend, held against eager.

Outputs, gradients and the state of the random generator are compared in the same dtype; the kernels are the same, so
the tolerances only leave room for a different order of sums.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)
#: What these return is whatever memory held: only shape, dtype and layout can be compared.
UNINITIALISED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
_TOLERANCES = {torch.float32: 1e-4, torch.complex64: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-3}

logging.getLogger("torch").setLevel(logging.CRITICAL)
warnings.filterwarnings("ignore", module="torch")


@dataclasses.dataclass(frozen=True)
class Entry:
    """An operator of the database in one dtype."""

    op: Any
    dtype: torch.dtype

    @property
    def name(self) -> str:
        variant = f".{self.op.variant_test_name}" if self.op.variant_test_name else ""
        return f"{self.op.name}{variant}"

    def __str__(self) -> str:
        return f"{self.name}-{str(self.dtype).removeprefix('torch.')}"


def entries(dtype: torch.dtype) -> list[Entry]:
    """Every entry that supports ``dtype`` on the CPU, in the database's order."""
    return [Entry(op, dtype) for op in op_db if op.supports_dtype(dtype, "cpu")]


def default_quarter() -> list[Entry]:
    """A fixed quarter of the float32 entries, and of those one further dtype each, in turn."""
    chosen: list[Entry] = []
    for number, entry in enumerate(entries(torch.float32)[::4]):
        chosen.append(entry)
        other = DTYPES[1 + number % 3]
        if entry.op.supports_dtype(other, "cpu"):
            chosen.append(Entry(entry.op, other))
    return chosen


def copied(value: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), value)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _run(fn: Callable[..., Any], sample: tuple[Any, Any, Any]) -> tuple[list[Any], list[Any], torch.Tensor]:
    """Outputs, gradients of the inputs, state of the generator afterwards."""
    first, args, kwargs = sample
    torch.manual_seed(0)
    outputs = _tensors(fn(first, *args, **kwargs))
    state = torch.get_rng_state()
    differentiable = [out for out in outputs if out.requires_grad]
    leaves = [tensor for tensor in _tensors(sample) if tensor.requires_grad]
    gradients: tuple[Any, ...] = ()
    if differentiable and leaves:
        loss = sum((out.abs() if out.is_complex() else out).sum() for out in differentiable)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)  # type: ignore[arg-type]
    return outputs, list(gradients), state


def _samples(entry: Entry, most: int) -> Iterator[tuple[Any, Any, Any]]:
    grad = entry.op.supports_autograd and (entry.dtype.is_floating_point or entry.dtype.is_complex)
    if grad and entry.dtype not in entry.op.supported_backward_dtypes("cpu"):
        grad = False
    torch.manual_seed(0)
    for number, sample in enumerate(entry.op.sample_inputs("cpu", entry.dtype, requires_grad=grad)):
        if number == most:
            return
        yield sample.input, sample.args, sample.kwargs


def _difference(want: Any, got: Any, *, values: bool) -> str | None:
    """What tells two tensors apart; ``None`` and zeros are the same gradient."""
    if want is None or got is None:
        other = got if want is None else want
        return None if other is None or not other.any() else "one is None, the other is not zero"
    if want.shape != got.shape or want.dtype != got.dtype or want.layout != got.layout:
        return f"eager {tuple(want.shape)} {want.dtype} {want.layout}, compiled {tuple(got.shape)} {got.dtype}"
    if not values:
        return None
    if want.layout is not torch.strided:
        want, got = want.to_dense(), got.to_dense()
    tolerance = _TOLERANCES.get(want.dtype, 1e-7)
    if want.is_floating_point() or want.is_complex():
        same = torch.allclose(want, got, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = torch.equal(want, got)
    return None if same else "values differ"


def failure(entry: Entry, compile_fn: Callable[[Any], Any], *, most: int = 3) -> str | None:
    """Why the entry does not behave as in eager for its first ``most`` samples; ``None`` where it does.

    A sample that eager itself refuses is passed over.
    """
    values = entry.op.name not in UNINITIALISED
    torch._dynamo.reset()

    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        return entry.op.op(first, *args, **kwargs)

    for sample in _samples(entry, most):
        try:
            want = _run(call, copied(sample))
        except Exception:
            continue
        compiled = compile_fn(call)
        for turn in ("", "second call: "):
            try:
                got = _run(compiled, copied(sample))
            except Exception as e:
                return f"{turn}{type(e).__name__}: {(str(e).splitlines() or [''])[0][:160]}"
            problem = _unlike(want, got, values=values)
            if problem:
                return turn + problem
    return None


def _unlike(want: Any, got: Any, *, values: bool) -> str | None:
    for what, left, right in (("output", want[0], got[0]), ("gradient", want[1], got[1])):
        if len(left) != len(right):
            return f"eager has {len(left)} {what}s, compiled {len(right)}"
        for number, pair in enumerate(zip(left, right, strict=True)):
            problem = _difference(*pair, values=values)
            if problem:
                return f"{what} {number}: {problem}"
    return None if torch.equal(want[2], got[2]) else "the generator's state differs"
