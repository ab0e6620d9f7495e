"""What ``thunderfx bench`` times against each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from thunderfx import thunderfx
from thunderfx.dynamo.lightning import LightningCompiled, lightning_problem
from thunderfx.executors import resolve_executors

from thunderfx_cli.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Contender:
    name: str
    compiled: Callable[[Any], Any]


def contenders(backends: Sequence[str], executors: Sequence[str], compile_options: dict[str, Any]) -> list[Contender]:
    """One for each backend, and for ``thunderfx`` one for each combination of executors (``"sdpa,inductor"``).

    ``inductor`` is ``torch.compile`` as it stands. Raises :class:`UsageError` for an executor that is not known and for
    lightning-thunder where it cannot be imported.
    """
    made: list[Contender] = []
    for backend in dict.fromkeys(backends):
        if backend == "eager":
            made.append(Contender(backend, lambda fn: fn))
        elif backend in ("aot_eager", "inductor"):
            made.append(Contender(backend, _torch_compiled(backend, compile_options)))
        elif backend == "lightning":
            made.append(Contender(backend, _lightning()))
        else:
            made += [_ours(combination, compile_options) for combination in dict.fromkeys(executors)]
    return made


def _torch_compiled(backend: str, options: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda fn: torch.compile(fn, backend=backend, **options)


def _ours(combination: str, options: dict[str, Any]) -> Contender:
    names = [part.strip() for part in combination.split(",") if part.strip()]
    try:
        resolve_executors(names)
    except (ValueError, TypeError) as e:
        raise UsageError(f"--executors {combination}: {e}") from None
    label = "thunderfx" if names in ([], ["torch"]) else f"thunderfx {','.join(names)}"
    return Contender(label, lambda fn: thunderfx(fn, executors=names, **options))


def _lightning() -> Callable[[Any], Any]:
    problem = lightning_problem()
    if problem:
        raise UsageError(f"--backends lightning: {problem}")
    return LightningCompiled
