"""Splitting the joint graph into forward and backward.

torch's min-cut partitioner may recompute in the backward a value that the forward computed from an input, also where
the forward then writes to that input: the backward would read the new value (seen on torch 2.13: a parameter that is
updated under ``no_grad`` and then used). Here such values are saved.
"""

from __future__ import annotations

from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

_COPY = torch.ops.aten.copy_.default


def partition(joint: torch.fx.GraphModule, joint_inputs: Any, **options: Any) -> tuple[Any, Any]:
    """Forward and backward graph; options are those of the partitioner."""
    protect_changed_inputs(joint)
    drop_unused_statistics(joint)
    draw_again(joint)
    forward, backward = min_cut_rematerialization_partition(joint, joint_inputs, **options)
    return forward, backward


def protect_changed_inputs(joint: torch.fx.GraphModule) -> None:
    """Have values saved that the forward reads from an input before it changes that input."""
    changed = [
        node.args[0]
        for node in joint.graph.nodes
        if node.op == "call_function" and node.target is _COPY and _is_placeholder(node.args[0])
    ]
    for placeholder in dict.fromkeys(changed):
        assert isinstance(placeholder, torch.fx.Node)
        for node in _reads(placeholder):
            if not _is_backward(node):
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def drop_unused_statistics(joint: torch.fx.GraphModule) -> None:
    """Take running statistics out of BatchNorm's backward in training, which does not read them.

    The kernels use the statistics of the batch then (``native_batch_norm_backward`` in
    aten/src/ATen/native/native_functions.yaml: both are optional); kept, they would be saved for the backward.
    """
    for node in joint.graph.nodes:
        if node.target is torch.ops.aten.native_batch_norm_backward.default and node.args[7] is True:
            node.update_arg(3, None)
            node.update_arg(4, None)


def draw_again(joint: torch.fx.GraphModule) -> None:
    """Have numbers that are a function of a seed (executors/triton/philox.py) drawn again rather than saved."""
    for node in joint.graph.nodes:
        if str(node.target) == "thunderfx.uniform.default":
            node.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE


def _is_placeholder(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and node.op == "placeholder"


def _is_backward(node: torch.fx.Node) -> bool:
    return bool(node.meta.get("partitioner_tag") == "is_backward" or node.meta.get("autograd_backward"))


def _is_view(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(ret.alias_info is not None for ret in schema.returns)


def _reads(placeholder: torch.fx.Node) -> list[torch.fx.Node]:
    """Nodes that read the input's memory, directly or through views."""
    reads: list[torch.fx.Node] = []
    seen = {placeholder}
    todo = [placeholder]
    while todo:
        for user in todo.pop().users:
            if user in seen or user.op != "call_function" or user.target is _COPY:
                continue
            seen.add(user)
            if _is_view(user):
                todo.append(user)
            else:
                reads.append(user)
    return reads
