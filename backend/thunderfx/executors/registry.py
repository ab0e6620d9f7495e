"""Executors by name."""

from __future__ import annotations

from collections.abc import Sequence

from thunderfx.executors.base import Executor
from thunderfx.executors.torch_executor import TorchExecutor

_BUILT_IN: dict[str, type[Executor]] = {"torch": TorchExecutor}


def resolve_executors(wanted: Sequence[str | Executor] | None) -> tuple[Executor, ...]:
    """Executors in order of preference; the torch executor stands last, named or not.

    Raises ``ValueError`` for a name that is not known and ``TypeError`` for anything that is no executor.
    """
    if isinstance(wanted, str):
        raise TypeError(f"executors takes a list, got the string {wanted!r}; write [{wanted!r}]")
    chosen: list[Executor] = []
    for item in wanted or ():
        if isinstance(item, Executor):
            chosen.append(item)
        elif isinstance(item, str):
            if item not in _BUILT_IN:
                raise ValueError(f"unknown executor {item!r}; known: {', '.join(_BUILT_IN)}")
            chosen.append(_BUILT_IN[item]())
        else:
            raise TypeError(f"an executor is a name or an Executor, not {type(item).__name__}")
    return (*(executor for executor in chosen if executor.name != "torch"), TorchExecutor())
