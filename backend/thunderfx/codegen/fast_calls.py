"""Faster entry points of operators.

An overload's inner callable goes through the boxed calling convention: each argument becomes an ``IValue``. torch's
own Python functions (``torch.addmm``) parse arguments straight into the kernel's types, which takes about half the time
of a small operator. They choose the overload from the arguments, so a function stands in for an overload only where it
can choose no other: the operator has no other overload, or it is listed here and tested
(tests/unit/codegen/test_fast_calls.py watches which overload each dispatches to).

Private names of torch used here (checked on 2.13): ``torch._C._VariableFunctions``, ``torch._C._nn``,
``torch._C.TensorBase``, ``OpOverload._op``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

#: Operators with several overloads: the listed one is what the function chooses for the arguments that it takes.
SEVERAL_OVERLOADS = frozenset(
    {
        "aten.add.Tensor",
        "aten.addmm.default",
        "aten.bmm.default",
        "aten.mm.default",
        "aten.div.Tensor",
        "aten.mul.Tensor",
        "aten.sub.Tensor",
        "aten.mean.dim",
        "aten.select.int",
        "aten.split.Tensor",
        "aten.sum.default",
        "aten.sum.dim_IntList",
        "aten.transpose.int",
        "aten.pow.Tensor_Scalar",
        "aten.where.self",
        "aten.squeeze.dim",
        "aten.max_pool2d_with_indices.default",
        "aten.add_.Tensor",
        "aten.sub_.Tensor",
        "aten.mul_.Tensor",
        "aten.div_.Tensor",
    }
)
#: Operators that torch offers as methods only.
METHODS = frozenset({"aten.view.default", "aten.expand.default"})
_FUNCTIONS = (torch._C._VariableFunctions, torch._C._nn)


@functools.lru_cache(maxsize=4096)
def fast_call(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """The quickest callable that runs exactly ``overload``."""
    inner: Callable[..., Any] = overload._op
    name = str(overload)
    short = overload._schema.name.removeprefix("aten::")
    if overload.namespace != "aten" or (overload._schema.is_mutable and not short.endswith("_")):
        return inner
    if name in METHODS:
        return getattr(torch._C.TensorBase, short)  # type: ignore[no-any-return]
    if name not in SEVERAL_OVERLOADS and not _is_only_overload(overload, short):
        return inner
    for space in (*_FUNCTIONS, torch._C.TensorBase) if short.endswith("_") else _FUNCTIONS:
        found = getattr(space, short, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return inner


def _is_only_overload(overload: torch._ops.OpOverload, short: str) -> bool:
    """Whether the operator's other overloads are out variants only, and its first argument is a tensor.

    A ``reduction`` left out means the mean to the operator and none to the function, whose argument parser reads the
    default ``at::Reduction::Mean`` as a number and finds 0 (torch/csrc/utils/python_arg_parser.cpp).
    """
    arguments = overload._schema.arguments
    if any(argument.name == "reduction" and argument.has_default_value() for argument in arguments):
        return False
    if not arguments or str(arguments[0].type) not in ("Tensor", "List[Tensor]"):
        return False
    others = [other for other in getattr(torch.ops.aten, short).overloads() if other != overload._overloadname]
    return all("out" in other for other in others)
