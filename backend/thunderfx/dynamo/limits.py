"""Graphs of which AOTAutograd is known to give a wrong result; they run as Dynamo's graph, in eager.

Each entry names the report and the torch version on which it was seen. A graph that matches loses its traces below the
torch level; the run says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_PINV = frozenset({"pinv", "linalg_pinv"})


def eager_reason(graph: torch.fx.GraphModule) -> str | None:
    """Why this Dynamo graph must run in eager, or ``None``."""
    nodes = list(graph.graph.nodes)
    if _complex_pinv(nodes):
        return "the gradient of a complex pinv is wrong in AOTAutograd (pytorch/pytorch#197084, seen on torch 2.13)"
    if _rebuilt_from_wrong_base(nodes):
        return (
            "an output that views one of several inputs that share memory, one of which is written to, is rebuilt "
            "from the wrong one by AOTAutograd (pytorch/pytorch#198095, seen on torch 2.13)"
        )
    return None


def _value(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None


def _name(node: torch.fx.Node) -> str:
    return str(node.target if node.op == "call_method" else getattr(node.target, "__name__", ""))


def _complex_pinv(nodes: Iterable[torch.fx.Node]) -> bool:
    for node in nodes:
        if node.op in ("call_function", "call_method") and any(part in _name(node) for part in _PINV):
            value = _value(node)
            if isinstance(value, torch.Tensor) and value.is_complex() and value.requires_grad:
                return True
    return False


def _storage(value: Any) -> Any:
    """Identity of a tensor's memory."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    try:
        return value.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def _rebuilt_from_wrong_base(nodes: list[torch.fx.Node]) -> bool:
    inputs = [_storage(_value(node)) for node in nodes if node.op == "placeholder"]
    shared = {memory for memory in inputs if memory is not None and inputs.count(memory) > 1}
    if not shared or not any(_writes(node) for node in nodes):
        return False
    returned = [node for out in nodes if out.op == "output" for node in out.all_input_nodes]
    return any(node.op != "placeholder" and _storage(_value(node)) in shared for node in returned)


def _writes(node: torch.fx.Node) -> bool:
    name = _name(node)
    if node.op == "call_method" or node.op == "call_function":
        return (name.endswith("_") and not name.endswith("__")) or name in ("setitem", "copy_") or "out" in node.kwargs
    return False
