"""Qualified names of what FX nodes call, and what is known of its effects."""

from __future__ import annotations

import functools
from typing import Any

import torch

from thunderfx.codegen.resolve import resolve
from thunderfx.trace import TraceError

_HigherOrderOperator = torch._ops.HigherOrderOperator
#: Where a torch-level function is looked for, the most public place first.
_SPACES = (
    *("torch.nn.functional", "torch", "torch.linalg", "torch.fft", "torch.special", "torch._C._nn"),
    *("operator", "math"),
)
#: Higher-order operators without effects of their own and with values that depend on the arguments alone.
PURE_HIGHER_ORDER = frozenset({"flex_attention", "flex_attention_backward"})


@functools.lru_cache(maxsize=4096)
def qualified_name(target: Any) -> str | None:
    """A name by which :func:`thunderfx.codegen.resolve` finds ``target`` itself, or ``None``."""
    for name in _candidates(target):
        try:
            if resolve(name) is target:
                return name
        except TraceError:
            continue
    return None


def _candidates(target: Any) -> list[str]:
    if isinstance(target, torch._ops.OpOverload):
        text = str(target)
        return [text if text.startswith("aten.") else f"torch.ops.{text}"]
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [f"torch.ops.{target._qualified_op_name.replace('::', '.')}"]
    if isinstance(target, _HigherOrderOperator):
        return [f"torch.ops.higher_order.{_higher_order_name(target)}"]
    name = getattr(target, "__name__", "")
    return [f"{space}.{name}" for space in _SPACES] if name else []


@functools.lru_cache(maxsize=4096)
def effect_tags(target: Any) -> tuple[str, ...]:
    """Tags ``random``, ``mutation``, ``view``, ``effect`` and ``collective``, as the operator's schema tells.

    What has no schema and is not known to be pure counts as an ``effect``: it is neither removed nor merged.
    """
    if isinstance(target, torch._ops.OpOverload):
        tags = []
        if torch.Tag.nondeterministic_seeded in target.tags:
            tags.append("random")
        if target._schema.is_mutable:
            tags.append("mutation")
        elif any(ret.alias_info is not None for ret in target._schema.returns):
            tags.append("view")
        if target.namespace in ("_c10d_functional", "c10d", "_dtensor"):
            tags.append("collective")
        elif target.namespace not in ("aten", "prims") and not _returns_only_values(target):
            tags.append("effect")
        elif "assert" in target._schema.name or not target._schema.returns:
            tags.append("effect")
        return tuple(tags)
    if isinstance(target, _HigherOrderOperator):
        return () if _higher_order_name(target) in PURE_HIGHER_ORDER else ("effect",)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return ("effect",)
    return () if qualified_name(target) is not None else ("effect",)


def _higher_order_name(target: Any) -> str:
    return str(target.name())


def _returns_only_values(target: torch._ops.OpOverload) -> bool:
    """A custom operator is taken to compute its outputs from its inputs when it has outputs and mutates nothing."""
    return bool(target._schema.returns) and not target._schema.is_mutable
