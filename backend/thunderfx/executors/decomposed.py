"""A region as a graph of the operators that an executor wants.

Private names of torch used here (checked on 2.13): ``enable_python_dispatcher`` of torch/_dispatch/python.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx

from thunderfx.executors.base import Region
from thunderfx.lowering.raising import raise_region


def decomposed(
    region: Region, fake_mode: Any, table: Mapping[Any, Callable[..., Any]], *, functional: bool = False
) -> torch.fx.GraphModule:
    """The region traced through ``table`` with its example inputs; ``functional``: without operators in place."""
    interpreter = torch.fx.Interpreter(raise_region(region.trace))

    def run(*args: Any) -> Any:
        with torch.fx.traceback.preserve_node_meta():
            return interpreter.run(*args, enable_io_processing=False)

    with torch.no_grad(), fake_mode or contextlib.nullcontext(), enable_python_dispatcher():
        inputs = [
            value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value
            for value in region.examples
        ]
        traced = torch.func.functionalize(run) if functional else run
        return make_fx(traced, decomposition_table=dict(table), tracing_mode="real", _allow_non_fake_inputs=True)(
            *inputs
        )
