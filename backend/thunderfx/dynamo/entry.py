"""``thunderfx(fn)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunderfx.dynamo.compiled import ThunderFXCompiledObject, uncompiled
from thunderfx.dynamo.compiler import ThunderCompiler
from thunderfx.executors import Executor
from thunderfx.passes.pipeline import Transform
from thunderfx.trace import TraceCtx

#: Options that go to ``torch.compile``.
TORCH_COMPILE_OPTIONS = frozenset({"fullgraph", "dynamic", "mode", "options", "disable"})


def thunderfx(
    fn: Callable[..., Any],
    /,
    *,
    executors: Sequence[str | Executor] | None = None,
    transforms: Sequence[Transform] = (),
    strict: bool = False,
    **torch_compile_options: Any,
) -> ThunderFXCompiledObject:
    """Compile a function or module through the Thunder backend; nothing happens until the first call.

    ``fn`` may be a function or an ``nn.Module``; ``thunderfx`` works as a decorator too. ``fullgraph``, ``dynamic``,
    ``mode``, ``options`` and ``disable`` go to ``torch.compile``; ``executors``, ``transforms`` and ``strict`` to
    :class:`ThunderCompiler`. What is compiled already is compiled anew.
    Raises ``TypeError`` for any other option and for an ``fn`` that cannot be called.
    """
    unknown = sorted(set(torch_compile_options) - TORCH_COMPILE_OPTIONS)
    if unknown:
        known = ", ".join(sorted(TORCH_COMPILE_OPTIONS | {"executors", "transforms", "strict"}))
        raise TypeError(f"thunderfx() got an unknown option {', '.join(map(repr, unknown))}; known: {known}")
    if not callable(fn):
        raise TypeError(f"thunderfx() takes a function or a module, not {type(fn).__name__}")
    fn = uncompiled(fn)
    backend = ThunderCompiler(executors=executors, transforms=transforms, strict=strict)
    return ThunderFXCompiledObject(backend, torch.compile(fn, backend=backend, **torch_compile_options))


def last_traces(
    compiled: ThunderFXCompiledObject | ThunderCompiler, direction: str = "forward", *, stage: str | None = None
) -> list[TraceCtx]:
    """The trace of every subgraph in ``direction`` after ``stage`` (default: the last), where there is one.

    ``direction`` is ``"forward"``, ``"backward"`` or ``"graph"`` (the torch level, before differentiation). Stages are
    listed in ``SubgraphInfo.stages``. Raises ``ValueError`` for another direction, and for a stage that no subgraph
    went through while there are subgraphs.
    """
    infos = compiled.subgraph_infos
    directions = ("forward", "backward", "graph")
    if direction not in directions:
        raise ValueError(f"direction is one of {', '.join(directions)}, not {direction!r}")
    found = [trace for info in infos if (trace := info.trace(direction, stage)) is not None]
    if stage is not None and infos and not found:
        known = dict.fromkeys(item.name for info in infos for item in info.stages[direction])
        raise ValueError(f"no {direction} trace after stage {stage!r}; stages: {', '.join(known) or 'none'}")
    return found
