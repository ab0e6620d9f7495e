"""Executors by name: those that come with this package, and those of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points

from thunderfx.executors.base import Executor, FusionExecutor, OperatorExecutor
from thunderfx.executors.torch_executor import TorchExecutor

#: Group of entry points; each names a subclass of ``Executor``, or a callable that returns an executor.
ENTRY_POINTS = "thunderfx.executors"
_BUILT_IN = {
    "torch": "thunderfx.executors.torch_executor:TorchExecutor",
    "sdpa": "thunderfx.executors.sdpa:SdpaExecutor",
    "triton": "thunderfx.executors.triton:TritonExecutor",
    "inductor": "thunderfx.executors.inductor:InductorExecutor",
}


def resolve_executors(wanted: Sequence[str | Executor] | None) -> tuple[Executor, ...]:
    """Executors in order of preference; the torch executor stands last, named or not.

    Raises ``ValueError`` for a name that is not known, that comes twice or whose package cannot be loaded, and
    ``TypeError`` for anything that is no executor.
    """
    if isinstance(wanted, str):
        raise TypeError(f"executors takes a list, got the string {wanted!r}; write [{wanted!r}]")
    chosen: list[Executor] = []
    for item in wanted or ():
        if not isinstance(item, (str, Executor)):
            raise TypeError(f"an executor is a name or an Executor, not {type(item).__name__}")
        executor = _by_name(item) if isinstance(item, str) else _checked(item, repr(item))
        if any(other.name == executor.name for other in chosen):
            raise ValueError(f"executor {executor.name!r} is named twice")
        chosen.append(executor)
    return (*(executor for executor in chosen if executor.name != "torch"), TorchExecutor())


def _by_name(name: str) -> Executor:
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        made = getattr(importlib.import_module(module), attribute)()
        assert isinstance(made, Executor)
        return made
    installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if name not in installed:
        raise ValueError(f"unknown executor {name!r}; known: {', '.join([*_BUILT_IN, *sorted(installed)])}")
    return _load(installed[name])


def _load(point: EntryPoint) -> Executor:
    where = f"executor {point.name!r} ({point.value}" + (f" of {point.dist.name})" if point.dist else ")")
    try:
        made = point.load()()
    except Exception as e:
        raise ValueError(f"{where} cannot be loaded: {type(e).__name__}: {e}") from e
    return _checked(made, where)


def _checked(executor: object, what: str) -> Executor:
    if not isinstance(executor, (OperatorExecutor, FusionExecutor)):
        raise TypeError(f"{what} is no OperatorExecutor and no FusionExecutor but {type(executor).__name__}")
    if not executor.name or not executor.name.isidentifier():
        raise ValueError(f"{what} has the name {executor.name!r}; a name is a Python identifier")
    return executor
