"""Splitting the joint graph into forward and backward.

torch's min-cut partitioner may recompute in the backward a value that the forward computed from an input, also where
the forward then writes to that input: the backward would read the new value (seen on torch 2.13: a parameter that is
updated under ``no_grad`` and then used). Here such values are saved, and an input that the backward reads itself and
the forward changes is read from a copy that is made before the change.
"""

from __future__ import annotations

from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

_COPY = torch.ops.aten.copy_.default
_CLONE = torch.ops.aten.clone.default


def partition(joint: torch.fx.GraphModule, joint_inputs: Any, **options: Any) -> tuple[Any, Any]:
    """Forward and backward graph; options are those of the partitioner."""
    protect_changed_inputs(joint)
    forward, backward = min_cut_rematerialization_partition(joint, joint_inputs, **options)
    return forward, backward


def protect_changed_inputs(joint: torch.fx.GraphModule) -> None:
    """Keep values that the forward reads from an input, before it changes that input, as they were."""
    changed = [
        node.args[0]
        for node in joint.graph.nodes
        if node.op == "call_function" and node.target is _COPY and _is_placeholder(node.args[0])
    ]
    for placeholder in dict.fromkeys(changed):
        assert isinstance(placeholder, torch.fx.Node)
        reads = _reads(placeholder)
        if any(_is_backward(node) for node in reads):
            _read_from_copy(joint, placeholder)
        else:
            for node in reads:
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    if changed:
        joint.recompile()


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


def _read_from_copy(joint: torch.fx.GraphModule, placeholder: torch.fx.Node) -> None:
    last = next(node for node in reversed(joint.graph.nodes) if node.op == "placeholder")
    with joint.graph.inserting_after(last):
        copy = joint.graph.call_function(_CLONE, (placeholder,))
    copy.meta = {
        "val": placeholder.meta.get("val"),
        "tensor_meta": placeholder.meta.get("tensor_meta"),
        "partitioner_tag": "is_forward",
        "recompute": CheckpointPolicy.MUST_SAVE,
    }
    placeholder.replace_all_uses_with(
        copy, delete_user_cb=lambda user: user not in (copy,) and user.target is not _COPY
    )
